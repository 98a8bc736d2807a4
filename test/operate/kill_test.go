package operate

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kconsume/kconsume/admin/dlq"
	"github.com/kconsume/kconsume/test/kcat"
	"github.com/kconsume/kconsume/test/operate/lab"
	"github.com/twmb/franz-go/pkg/kgo"
)

func decodeAs(t *testing.T, got lab.Answer, status int, v any) {
	t.Helper()
	if got.Status != status {
		t.Fatalf("%v, want %d", got, status)
	}
	if err := json.Unmarshal(got.Body, v); err != nil {
		t.Fatalf("%v in %s", err, got.Body)
	}
}

// step names what a write of a job does.
func step(w lab.Produce, s *scene) string {
	switch {
	case w.Topic == s.topic+".replay":
		return "send"
	case len(w.Keys) == 0:
		return "?"
	}
	return kindOf(w.Keys[0])
}

// point is a place in a job at which its daemon is killed: at its nth write of a
// kind, "" = of any kind.
type point struct {
	step string
	n    int
	when lab.When
	// takeover: another daemon of the group goes on; otherwise the same one is
	// started again.
	takeover bool
	// waits: the copies fail once and wait, so that when the job goes on nobody
	// can tell from how they ended that they were sent.
	waits bool
}

// waitsFor is longer than a test.
const waitsFor = "10m"

// waiting are failures of which every copy waits for a retry first.
func waiting() []lab.Failure {
	all := handled()
	all[0].Value = "fail 1"
	return all
}

func (p point) String() string {
	who := "restart"
	if p.takeover {
		who = "takeover"
	}
	kind := p.step
	if kind == "" {
		kind = "write"
	}
	if p.waits {
		who += "-waits"
	}
	return fmt.Sprintf("%s-%s-%02d-%s", p.when, kind, p.n, who)
}

// share are the points of every run. The kinds of writes of a replay are: audit,
// plan (it is applied), job (it begins, its lease, its progress), rec (claims,
// and after a send what was sent), send (the copies themselves).
func share() []point {
	return []point{
		{step: "job", n: 1, when: lab.After},
		{step: "rec", n: 1, when: lab.Before, takeover: true},
		{step: "rec", n: 1, when: lab.After},
		{step: "send", n: 3, when: lab.Before, takeover: true},
		{step: "send", n: 4, when: lab.After, waits: true},
		{step: "send", n: 5, when: lab.During, takeover: true, waits: true},
		{step: "send", n: 6, when: lab.After, takeover: true},
		{step: "rec", n: 6, when: lab.Before},
		{step: "rec", n: 8, when: lab.After, takeover: true},
		{step: "job", n: 5, when: lab.After},
	}
}

// writes is how many writes a job of 1,000 records has at least.
const writes = 40

// everywhere is every write, before and after, with a restart and a takeover in turn.
func everywhere() (all []point) {
	for n := 1; n <= writes; n++ {
		for i, when := range []lab.When{lab.Before, lab.After, lab.During} {
			all = append(all, point{n: n, when: when, takeover: (n+i)%2 == 0, waits: n%3 == 0})
		}
	}
	return append(all, share()...)
}

// A daemon is killed at a write of a job of 1,000 records. Afterwards each is
// sent exactly once: none is lost, none sent twice. Another group on the main
// topics sees none of it.
func TestKilledAtEveryStep(t *testing.T) {
	const records = 1000
	points := share()
	if os.Getenv(fullEnv) != "" {
		points = everywhere()
	}
	cluster(t)
	others := watchMain(t)
	t.Cleanup(others.check) // when all subtests have ended
	for _, p := range points {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			s := newScene(t, "kill-"+p.String(), 4)
			others.add(s.topic)
			s.letters(0, records, map[bool][]lab.Failure{true: waiting(), false: handled()}[p.waits])
			a, client := s.start("--retry", waitsFor)
			b := a
			if p.takeover {
				b, _ = s.start("--retry", waitsFor)
			}
			plan := s.plan(a.As(lab.OperatorToken), dlq.PlanRequest{Reason: "the gateway is back", Rate: 10_000})
			if plan.Records != records {
				t.Fatalf("the plan has %d records: %+v", plan.Records, plan)
			}
			killed := s.killAt(a, client, p)

			apis := []*lab.API{a.As(lab.OperatorToken)}
			if p.takeover {
				apis = append(apis, b.As(lab.OperatorToken))
			}
			j := s.applyThrough(killed, plan.Digest, p.String(), apis...)
			lab.Until(t, "the daemon is killed", killed.fired)
			if !p.takeover {
				killed.restart(t)
			}
			api := b.As(lab.OperatorToken)
			end, is := s.settled, dlq.StatusSucceeded
			if p.waits {
				end, is = s.ended, dlq.StatusReplayed
			}
			j = end(j.ID, api)
			s.exactlyOnce(api, j, records, is)
			t.Logf("killed at %s: job %s, %d sent, %d succeeded, %d uncertain, %.0f s", killed.at, j.Status, j.Done, j.Succeeded, j.Uncertain, j.Ended.Sub(j.Began).Seconds())
		})
	}
}

// applyThrough applies a plan at a daemon that may die of it. Whoever clicks has a
// key, and clicks again while there is no answer; where there is no other daemon
// the one that died is started again.
func (s *scene) applyThrough(k *kill, digest, key string, apis ...*lab.API) (j dlq.Job) {
	s.t.Helper()
	lab.Until(s.t, "the plan is applied", func() bool {
		for _, api := range apis {
			got, err := api.Try(s.t.Context(), http.MethodPost, "/v1/plans/"+digest+"/apply", nil, "Idempotency-Key", key)
			if err == nil && got.Status == http.StatusAccepted {
				decodeAs(s.t, got, http.StatusAccepted, &j)
				return true
			}
			if err == nil && got.Status != http.StatusServiceUnavailable {
				s.t.Fatalf("apply: %v", got)
			}
			if k.fired() && len(apis) == 1 {
				k.restart(s.t)
			}
		}
		return false
	})
	return j
}

// exactlyOnce holds what a job did against what kcat reads; is what all its dead
// letters are by then.
func (s *scene) exactlyOnce(api *lab.API, j dlq.Job, records int, is dlq.Status) {
	s.t.Helper()
	ids, replays := s.copies(s.topic+".replay", "X-Record-Id"), s.copies(s.topic+".replay", "X-Replay-Id")
	if more := twice(ids); len(more) > 0 {
		s.t.Errorf("records sent twice: %q", more)
	}
	if more := twice(replays); len(more) > 0 {
		s.t.Errorf("replay ids sent twice: %q", more)
	}
	st := s.statuses(api)
	if len(ids) != records || j.Done != records || j.Status != dlq.JobDone || j.Uncertain+j.Skipped+j.Failed != 0 || st[is] != records {
		s.t.Errorf("%d records are in the replay topic, the job is %+v, the dead letters are %v: want %d sent and %s, none uncertain", len(ids), j, st, records, is)
	}
	if n := len(kcat.Consume(s.t, s.bootstrap, s.topic)); n != 0 {
		s.t.Errorf("%d records came into the main topic", n)
	}
}

// kill is a daemon's death at a write.
type kill struct {
	d    *lab.Daemon
	done chan struct{}
	once sync.Once // of restart
	at   string
}

func (k *kill) fired() bool {
	select {
	case <-k.done:
		return true
	default:
		return false
	}
}

// restart starts the daemon again, once.
func (k *kill) restart(t *testing.T) {
	t.Helper()
	k.once.Do(func() { k.d.Begin(t) })
}

// killAt has a daemon killed at a point; with it happens what is done before
// anybody hears of it.
func (s *scene) killAt(d *lab.Daemon, client string, p point, with ...func()) *kill {
	k := &kill{d: d, done: make(chan struct{})}
	var mu sync.Mutex
	n := map[string]int{}
	s.proxy.Watch(client, func(w lab.Produce) *lab.Trap {
		if !strings.HasPrefix(w.Topic, s.topic+".") {
			return nil
		}
		what := step(w, s)
		if what == "out" {
			return nil // the engine's: its own writes are killed elsewhere
		}
		mu.Lock()
		defer mu.Unlock()
		n[what]++
		n[""]++
		if (what != p.step && p.step != "") || n[p.step] != p.n {
			return nil
		}
		k.at = fmt.Sprintf("%s %s no. %d of %d records, write %d", p.when, what, n[what], len(w.Keys), n[""])
		return &lab.Trap{When: p.when, Do: func() {
			d.Kill()
			s.proxy.Watch(client, nil)
			for _, do := range with {
				do()
			}
			close(k.done)
		}}
	})
	return k
}

// others is another group that reads main topics all the while.
type others struct {
	t      *testing.T
	client *kgo.Client
	mu     sync.Mutex
	topics []string
	seen   []string
	stop   context.CancelFunc
	ended  chan struct{}
}

const sentinel = "the end"

func watchMain(t *testing.T) *others {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(broker.Cluster(t).Bootstrap()), kgo.ConsumerGroup("others"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.ConsumeTopics("kill-none"), kgo.MetadataMinAge(100*time.Millisecond), kgo.UnknownTopicRetries(-1))
	if err != nil {
		t.Fatal(err)
	}
	// Not the test's context, which ends before its subtests' daemons do.
	ctx, stop := context.WithCancel(context.Background())
	o := &others{t: t, client: c, stop: stop, ended: make(chan struct{})}
	go func() {
		defer close(o.ended)
		for {
			fetched := c.PollFetches(ctx)
			if fetched.IsClientClosed() || ctx.Err() != nil {
				return
			}
			o.mu.Lock()
			fetched.EachRecord(func(r *kgo.Record) { o.seen = append(o.seen, r.Topic+" "+string(r.Value)) })
			o.mu.Unlock()
		}
	}()
	return o
}

func (o *others) add(topic string) {
	o.mu.Lock()
	o.topics = append(o.topics, topic)
	o.mu.Unlock()
	o.client.AddConsumeTopics(topic)
}

// check writes a last record to each topic and waits for them: nothing else came.
func (o *others) check() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer func() { cancel(); o.stop(); <-o.ended; o.client.Close() }()
	w, err := kgo.NewClient(kgo.SeedBrokers(broker.Cluster(o.t).Bootstrap()))
	if err != nil {
		o.t.Error(err)
		return
	}
	defer w.Close()
	for _, topic := range o.topics {
		if err := w.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte(sentinel)}).FirstErr(); err != nil {
			o.t.Error(err)
			return
		}
	}
	var seen []string
	for ; len(seen) < len(o.topics) && ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
		o.mu.Lock()
		seen = slices.Clone(o.seen)
		o.mu.Unlock()
	}
	for _, s := range seen {
		if !strings.HasSuffix(s, sentinel) {
			o.t.Errorf("another group on the main topic saw %q", s)
		}
	}
	if len(seen) < len(o.topics) {
		o.t.Errorf("another group saw the end of %d of %d main topics", len(seen), len(o.topics))
	}
}
