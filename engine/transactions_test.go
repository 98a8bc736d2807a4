package engine_test

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// An open transaction is nobody's fault here: what may be read is read and is no
// lag, the rest is named in the status with the time since when, and goes on with
// its end. An aborted one is passed.
func TestOpenTransactionIsNamed(t *testing.T) {
	for _, how := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
		inWorld(t, 1, []string{"t"}, func(w *world) {
			var c calls
			w.produce(values("t", "ok before")...)
			open := w.openTransaction("t", 2)
			w.produce(values("t", "ok behind")...)
			r := w.start(w.config(probe(&c)))
			begin := time.Now()
			time.Sleep(time.Minute)
			s := statusOf(r)
			p := s.Stages[0].Partitions[0]
			if p.Committed != 1 || s.Stages[0].Lag != 0 || s.Problem != "" || p.Problem != "" {
				t.Errorf("committed to %d, lag %d, problems %q, %q: want what may be read", p.Committed, s.Stages[0].Lag, s.Problem, p.Problem)
			}
			if since := p.OpenSince.Sub(begin); p.OpenSince.IsZero() || since < 0 || since > 10*time.Second {
				t.Errorf("open since %v, want since about %v", p.OpenSince, begin)
			}
			want := 2
			if how == kgo.TryCommit {
				want = 4
			}
			if err := open.EndTransaction(w.t.Context(), how); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Second)
			if p := statusOf(r).Stages[0].Partitions[0]; !p.OpenSince.IsZero() {
				t.Errorf("it has ended, but is open since %v", p.OpenSince)
			}
			r.end()
			if n := len(c.all()); n != want {
				t.Errorf("%d deliveries, want %d", n, want)
			}
			if lag := w.lag("g", "t"); lag != 0 {
				t.Errorf("lag %d behind the marker", lag)
			}
		})
	}
}
