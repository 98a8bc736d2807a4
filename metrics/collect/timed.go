package collect

import (
	"slices"
	"sync"
	"time"

	"github.com/kconsume/kconsume/engine"
	"github.com/kconsume/kconsume/plugin"
	"github.com/prometheus/client_golang/prometheus"
)

// otherTopic stands for origins that are none of the main topics: headers on a
// retry topic name them, so they may be anything.
const otherTopic = "other"

// Timed is a deliverer that measures how long each answer takes.
type Timed struct {
	to      engine.Deliverer
	topics  []string
	seconds *prometheus.HistogramVec // topic, stage
	out     chan plugin.Answers
	done    chan struct{}
	running sync.WaitGroup

	mu      sync.Mutex
	flying  map[uint64]begun // unanswered deliveries, by handle
	observe map[place]prometheus.Observer
}

type place struct{ topic, stage string }

type begun struct {
	at time.Time
	to prometheus.Observer
}

// NewTimed measures what goes to d, of which it is the only user from then on.
// topics are the main topics. Close must be called.
func NewTimed(d engine.Deliverer, r prometheus.Registerer, topics []string) *Timed {
	t := &Timed{
		to: d, topics: topics, out: make(chan plugin.Answers), done: make(chan struct{}),
		flying: map[uint64]begun{}, observe: map[place]prometheus.Observer{},
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kconsume_handler_duration_seconds", Help: "Time from handing a record to the handler to its answer, or to its deadline.",
			Buckets:                     []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
		}, []string{"topic", "stage"}),
	}
	r.MustRegister(t.seconds)
	t.running.Go(t.pass)
	return t
}

// Close ends it; answers that nobody has read are dropped.
func (t *Timed) Close() {
	close(t.done)
	t.running.Wait()
}

// Deliver notes when each delivery began.
func (t *Timed) Deliver(ds []plugin.Delivery) {
	now := time.Now()
	t.mu.Lock()
	for i := range ds {
		m := &ds[i].Message
		t.flying[ds[i].Handle] = begun{now, t.observer(m.Topic, m.Stage)}
	}
	t.mu.Unlock()
	t.to.Deliver(ds)
}

// observer is called with mu held.
func (t *Timed) observer(topic, stage string) prometheus.Observer {
	at := place{otherTopic, stage}
	if slices.Contains(t.topics, topic) {
		at.topic = topic
	}
	o := t.observe[at]
	if o == nil {
		o = t.seconds.WithLabelValues(at.topic, at.stage)
		t.observe[at] = o
	}
	return o
}

// Cancel asks that calls end early.
func (t *Timed) Cancel(handles []uint64) { t.to.Cancel(handles) }

// Answers are the deliverer's.
func (t *Timed) Answers() <-chan plugin.Answers { return t.out }

// pass hands answers on until there are no more, or Close.
func (t *Timed) pass() {
	for {
		select {
		case a, ok := <-t.to.Answers():
			if !ok {
				close(t.out)
				return
			}
			t.measure(&a)
			select {
			case t.out <- a:
			case <-t.done:
				return
			}
		case <-t.done:
			return
		}
	}
}

// measure leaves out what was cancelled: it tells nothing about the handler.
func (t *Timed) measure(a *plugin.Answers) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range a.Acked {
		t.answered(h, now, true)
	}
	for i := range a.Verdicts {
		v := &a.Verdicts[i]
		t.answered(v.Handle, now, v.Verdict.Rule != plugin.RuleCancelled)
	}
}

func (t *Timed) answered(handle uint64, now time.Time, count bool) {
	b, ok := t.flying[handle]
	if !ok {
		return
	}
	delete(t.flying, handle)
	if count {
		b.to.Observe(now.Sub(b.at).Seconds())
	}
}
