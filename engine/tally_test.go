package engine_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kconsume/kconsume/plugin"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
)

// clerk is a deliverer that fails a record with its value as the reason, "ok"
// and what begins so aside, and says that it is the handler of the moment.
type clerk struct {
	handler atomic.Value // string
	answers chan plugin.Answers
}

func newClerk(handler string) *clerk {
	c := &clerk{answers: make(chan plugin.Answers, 1<<10)}
	c.handler.Store(handler)
	return c
}

func (c *clerk) Deliver(ds []plugin.Delivery) {
	a := plugin.Answers{Handler: c.handler.Load().(string)}
	for i := range ds {
		value := string(ds[i].Message.Value)
		if strings.HasPrefix(value, "ok") {
			a.Acked = append(a.Acked, ds[i].Handle)
			continue
		}
		a.Verdicts = append(a.Verdicts, plugin.Answer{Handle: ds[i].Handle, Verdict: plugin.Verdict{
			Class: plugin.ClassPermanent, Reason: plugin.Reason(value), Code: "code " + ds[i].Message.ID, Message: ds[i].Message.ID,
		}})
	}
	c.answers <- a
}

func (c *clerk) Cancel([]uint64) {}

func (c *clerk) Answers() <-chan plugin.Answers { return c.answers }

// series is how many there are, and of how many bytes.
func series(t *testing.T, r *prometheus.Registry) (n int) {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		n += len(f.GetMetric())
	}
	return n
}

// Who failed how often and why: a version that fails is told from the one
// before it, from its first answer on.
func TestFailuresByClassAndVersion(t *testing.T) {
	inWorld(t, 1, []string{"t"}, func(w *world) {
		reg, d := prometheus.NewRegistry(), newClerk("shop@1")
		c := w.config(nil)
		c.Registerer, c.Deliverer = reg, d
		r := w.start(c)
		defer r.end()
		handle := func(values ...string) {
			for _, v := range values {
				w.produce(&kgo.Record{Topic: "t", Value: []byte(v)})
			}
			w.until(func() bool { return w.lag("g", "t") == 0 })
		}
		check := func(name string, want float64, labels ...string) {
			t.Helper()
			of := map[string]string{}
			for i := 0; i < len(labels); i += 2 {
				of[labels[i]] = labels[i+1]
			}
			if got := counted(t, reg, name, of); got != want {
				t.Errorf("%s%v is %v, want %v", name, of, got, want)
			}
		}
		handle("ok", "ok", "poison")
		d.handler.Store("shop@2")
		handle("ok", "poison", "timeout", "permanent", "a reason of its own")

		check("kconsume_deliveries_total", 3, "topic", "t", "stage", "main", "handler", "shop@1")
		check("kconsume_deliveries_total", 5, "topic", "t", "stage", "main", "handler", "shop@2")
		check("kconsume_failures_total", 1, "topic", "t", "stage", "main", "handler", "shop@1")
		check("kconsume_failures_total", 4, "topic", "t", "stage", "main", "handler", "shop@2")
		for _, class := range []string{"poison", "timeout", "permanent", "other"} {
			check("kconsume_failures_total", 1, "handler", "shop@2", "class", class)
		}
		// At 0 before the first: that is an increase.
		before := series(t, reg)
		handle("oversize", "panic", "handler_crash")
		if n := series(t, reg); n != before {
			t.Errorf("%d series, %d before the first failures of their kinds", n, before)
		}

		// One that is called otherwise at each start adds none without end.
		for i := range 20 {
			d.handler.Store(fmt.Sprintf("shop@start-%d", i))
			handle("poison")
		}
		check("kconsume_failures_total", 0, "handler", "shop@1")
		check("kconsume_failures_total", 1, "handler", "shop@start-19", "class", "poison")
		if n, most := series(t, reg), before+8*9; n > most {
			t.Errorf("%d series after 20 more versions, at most %d may be", n, most)
		}
		// The one of before again.
		d.handler.Store("shop@2")
		handle("poison")
		check("kconsume_failures_total", 1, "handler", "shop@2", "class", "poison")
	})
}

// Whatever records say, no series is named by it.
func TestRecordsNameNoSeries(t *testing.T) {
	const records = 100_000
	inWorld(t, 1, []string{"t"}, func(w *world) {
		reg := prometheus.NewRegistry()
		c := w.config(nil)
		c.Registerer, c.Deliverer, c.Retry = reg, newClerk("shop@1"), nil
		r := w.start(c)
		defer r.end()
		hostile := func(i int) *kgo.Record {
			name := fmt.Sprintf("k%d\n\"}\u202e", i)
			value := "ok"
			if i%100 == 0 {
				value = "poison"
			}
			return &kgo.Record{Topic: "t", Key: []byte(name), Value: []byte(value), Headers: []kgo.RecordHeader{
				{Key: "X-Original-Topic", Value: []byte(name)}, {Key: "X-Retry-Group", Value: []byte(name)}, {Key: "X-Handler", Value: []byte(name)},
				{Key: "X-Error-Class", Value: []byte(name)}, {Key: "X-Replay-Id", Value: []byte(name)}, {Key: name, Value: []byte(name)},
			}}
		}
		send := func(from, to int) {
			var batch []*kgo.Record
			for i := from; i < to; i++ {
				batch = append(batch, hostile(i))
			}
			w.produce(batch...)
			w.until(func() bool { return w.lag("g", "t") == 0 })
		}
		send(0, 200)
		before := series(t, reg)
		for i := 200; i < records; i += 9980 {
			send(i, min(i+9980, records))
		}
		if n := series(t, reg); n != before {
			t.Errorf("%d series after %d records, %d after 200", n, records, before)
		}
		if n := counted(t, reg, "kconsume_deliveries_total", nil); n != records {
			t.Errorf("%v of %d deliveries are counted", n, records)
		}
		if n := counted(t, reg, "kconsume_failures_total", nil); n != records/100 {
			t.Errorf("%v of %d failures are counted", n, records/100)
		}
	})
}
