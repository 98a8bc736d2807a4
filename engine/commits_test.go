package engine_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ledger watches commits as the brokers take them.
type ledger struct {
	mu       sync.Mutex
	requests []time.Time
	at       map[string]int64 // by topic/partition: the latest asked for
	asked    map[string]int   // by topic/partition
	back     []string         // commits that went back
	check    func(place string, offset int64)
}

func (w *world) watchCommits(check func(place string, offset int64)) *ledger {
	l := &ledger{at: map[string]int64{}, asked: map[string]int{}, check: check}
	w.cluster.ControlKey(int16(kmsg.OffsetCommit), func(req kmsg.Request) (kmsg.Response, error, bool) {
		w.cluster.KeepControl()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.requests = append(l.requests, time.Now())
		for _, topic := range req.(*kmsg.OffsetCommitRequest).Topics {
			for _, p := range topic.Partitions {
				place := fmt.Sprintf("%s/%d", topic.Topic, p.Partition)
				if p.Offset < l.at[place] {
					l.back = append(l.back, fmt.Sprintf("%s from %d to %d", place, l.at[place], p.Offset))
				}
				l.asked[place]++
				l.at[place] = max(l.at[place], p.Offset)
				if l.check != nil {
					l.check(place, p.Offset)
				}
			}
		}
		return nil, nil, false
	})
	return l
}

// Commits are few, only go up, and stay behind what is settled, however the
// calls of a partition end.
func TestCommitsCoalesceAndOnlyGoUp(t *testing.T) {
	inWorld(t, 3, []string{"t"}, func(w *world) {
		var c calls
		const n = 3000
		var ahead []string
		log := w.watchCommits(func(place string, offset int64) {
			c.mu.Lock()
			defer c.mu.Unlock()
			open := map[string]bool{}
			for _, one := range c.list {
				if one.release.IsZero() {
					open[fmt.Sprintf("%s/%d at %d", one.msg.Topic, one.msg.Partition, one.msg.Offset)] = true
				}
			}
			for at := range open {
				var p int32
				var o int64
				if _, err := fmt.Sscanf(at, "t/%d at %d", &p, &o); err == nil && place == fmt.Sprintf("t/%d", p) && o < offset {
					ahead = append(ahead, fmt.Sprintf("%s to %d, with %d in a handler", place, offset, o))
				}
			}
		})
		for i := range n {
			w.produce(&kgo.Record{Topic: "t", Partition: int32(i % 3), Key: fmt.Append(nil, i%97), Value: fmt.Appendf(nil, "sleep %d", 1+i*7%900)})
		}
		r := w.start(w.config(probe(&c)))
		begin := time.Now()
		for len(c.all()) < n {
			time.Sleep(100 * time.Millisecond)
		}
		took := time.Since(begin)
		time.Sleep(3 * time.Second)
		r.end()
		log.mu.Lock()
		defer log.mu.Unlock()
		if most := int(took/time.Second) + 8; len(log.requests) > most {
			t.Errorf("%d commits in %v, want at most %d: one a second", len(log.requests), took, most)
		}
		if len(log.requests) < int(took/time.Second)/2 {
			t.Errorf("%d commits in %v: too few", len(log.requests), took)
		}
		for _, what := range log.back {
			t.Errorf("a commit went back: %s", what)
		}
		for _, what := range ahead {
			t.Errorf("a commit went ahead: %s", what)
		}
		for p := range 3 {
			if at := log.at[fmt.Sprintf("t/%d", p)]; at != n/3 {
				t.Errorf("partition %d is committed to %d, want %d", p, at, n/3)
			}
		}
	})
}

// A coordinator that refuses the commit of one partition: the others are
// committed, the refused one later, and nothing is handled twice.
func TestPartialCommitErrors(t *testing.T) {
	inWorld(t, 3, []string{"t"}, func(w *world) {
		var c calls
		log := w.watchCommits(nil)
		r := w.start(w.config(probe(&c)))
		time.Sleep(5 * time.Second)
		fault := w.cluster.Fault(kfake.Fault{
			Keys: []kmsg.Key{kmsg.OffsetCommit}, Topic: "t", Partitions: []int32{1}, Err: kerr.UnknownTopicOrPartition, Count: -1,
		})
		for i := range 30 {
			w.produce(&kgo.Record{Topic: "t", Partition: int32(i % 3), Value: []byte("ok")})
		}
		time.Sleep(10 * time.Second)
		if lag := w.lag("g", "t"); lag != 10 {
			t.Errorf("lag %d, want 10: those of the refused partition", lag)
		}
		if s := statusOf(r); s.Problem == "" {
			t.Error("status does not say that commits are refused")
		}
		log.mu.Lock()
		if log.asked["t/0"] > 6 || log.asked["t/1"] < 10 {
			t.Errorf("commits asked for by partition: %v, want the refused one again and again, and no other", log.asked)
		}
		log.mu.Unlock()
		fault.Remove()
		time.Sleep(5 * time.Second)
		if lag := w.lag("g", "t"); lag != 0 {
			t.Errorf("lag %d after the refusals", lag)
		}
		if s := statusOf(r); s.Problem != "" {
			t.Errorf("it still says %q", s.Problem)
		}
		r.end()
		if n := len(c.all()); n != 30 {
			t.Errorf("%d deliveries, want 30", n)
		}
		log.mu.Lock()
		defer log.mu.Unlock()
		for _, what := range log.back {
			t.Errorf("a commit went back: %s", what)
		}
	})
}
