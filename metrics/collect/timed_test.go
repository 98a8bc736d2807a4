package collect

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kconsume/kconsume/plugin"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// desk is a deliverer whose answers the test writes.
type desk struct {
	got       []plugin.Delivery
	cancelled []uint64
	answers   chan plugin.Answers
}

func (d *desk) Deliver(ds []plugin.Delivery)   { d.got = append(d.got, ds...) }
func (d *desk) Cancel(handles []uint64)        { d.cancelled = append(d.cancelled, handles...) }
func (d *desk) Answers() <-chan plugin.Answers { return d.answers }

func delivery(handle uint64, topic, stage string) plugin.Delivery {
	return plugin.Delivery{Handle: handle, Message: plugin.Message{Topic: topic, Stage: stage}}
}

func newTimed(t *testing.T) (*Timed, *desk, *prometheus.Registry) {
	t.Helper()
	d, r := &desk{answers: make(chan plugin.Answers)}, prometheus.NewRegistry()
	return NewTimed(d, r, []string{"orders"}), d, r
}

// counts are a histogram's count and sum by topic and stage.
func counts(t *testing.T, r *prometheus.Registry) map[string]string {
	t.Helper()
	all, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, f := range all {
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetValue())
			}
			h := m.GetHistogram()
			if h.GetSampleCount() > 0 && len(h.PositiveSpan) == 0 {
				t.Errorf("%s has no native buckets", f.GetName())
			}
			out[strings.Join(labels, " ")] = fmt.Sprintf("%d %.3f", h.GetSampleCount(), h.GetSampleSum())
		}
	}
	return out
}

func TestTimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timed, d, r := newTimed(t)
		defer timed.Close()
		timed.Deliver([]plugin.Delivery{delivery(1, "orders", "main"), delivery(2, "orders", "main"), delivery(3, "orders", "retry.5s")})
		timed.Cancel([]uint64{2})
		if len(d.got) != 3 || len(d.cancelled) != 1 {
			t.Fatalf("delivered %d, cancelled %d", len(d.got), len(d.cancelled))
		}
		time.Sleep(2 * time.Second)
		d.answers <- plugin.Answers{Handler: "h@1", Acked: []uint64{1}, Verdicts: []plugin.Answer{{Handle: 2, Verdict: plugin.Verdict{Rule: plugin.RuleCancelled}}}}
		if a := <-timed.Answers(); a.Handler != "h@1" || len(a.Acked) != 1 || len(a.Verdicts) != 1 {
			t.Errorf("passed on as %+v", a)
		}
		time.Sleep(3 * time.Second)
		d.answers <- plugin.Answers{Verdicts: []plugin.Answer{{Handle: 3, Late: true}}}
		<-timed.Answers()
		d.answers <- plugin.Answers{Acked: []uint64{1, 3}, Ended: []uint64{3}} // answered already
		<-timed.Answers()
		got := counts(t, r)
		if want := map[string]string{"main orders": "", "retry.5s orders": ""}; len(got) != len(want) {
			t.Errorf("series %v", got)
		}
		if got["main orders"]+got["orders main"] != "1 2.000" || got["retry.5s orders"]+got["orders retry.5s"] != "1 5.000" {
			t.Errorf("measured %v", got)
		}
		if len(timed.flying) != 0 {
			t.Errorf("%d deliveries are remembered", len(timed.flying))
		}
	})
}

// The origin of a record on a retry topic is what its headers say: whatever
// they say, there are no further series.
func TestForgedOriginsAddNoSeries(t *testing.T) {
	timed, _, r := newTimed(t)
	defer timed.Close()
	for i := range uint64(100_000) {
		timed.Deliver([]plugin.Delivery{delivery(i, fmt.Sprintf("forged-%d", i), "retry.5s")})
		timed.measure(&plugin.Answers{Acked: []uint64{i}})
	}
	n, err := testutil.GatherAndCount(r)
	if err != nil || n != 1 || len(timed.observe) != 1 {
		t.Errorf("%d series, %d remembered, %v", n, len(timed.observe), err)
	}
}

func TestTimedEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timed, d, _ := newTimed(t)
		close(d.answers)
		if _, open := <-timed.Answers(); open {
			t.Error("still open")
		}
		timed.Close()
	})
	synctest.Test(t, func(t *testing.T) { // while nobody reads what was answered
		timed, d, _ := newTimed(t)
		d.answers <- plugin.Answers{}
		timed.Close()
	})
}
