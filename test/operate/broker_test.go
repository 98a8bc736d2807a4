package operate

import (
	"sync/atomic"
	"testing"

	"github.com/kconsume/kconsume/admin/dlq"
	"github.com/kconsume/kconsume/test/kafka"
	"github.com/kconsume/kconsume/test/operate/lab"
)

// The broker is killed at a send of a job: before it has seen the copies, while
// it writes them, and when they are written and nobody knows. Once it is back
// each record is sent exactly once, or is shown as uncertain.
func TestBrokerDiesAtASend(t *testing.T) {
	for _, when := range []lab.When{lab.Before, lab.During, lab.After} {
		t.Run(when.String(), func(t *testing.T) {
			t.Parallel()
			p, err := lab.NewProxy()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = p.Close() }) // nobody uses it any more
			c := kafka.Start(t, kafka.Options{Properties: map[string]string{
				"advertised.listeners": "PLAINTEXT://" + p.Address,
				// A killed broker is taken back at once.
				"broker.session.timeout.ms": "1000", "broker.heartbeat.interval.ms": "200",
			}})
			p.SetTarget(c.Addr(0))
			const records = 300
			s := stage(t, c, p, "broken", 3)
			s.letters(0, records, handled())
			d, client := s.start()
			api := d.As(lab.OperatorToken)
			plan := s.plan(api, dlq.PlanRequest{Reason: "the broker dies " + when.String() + " a send", Rate: 10_000})
			if plan.Records != records {
				t.Fatalf("%+v", plan)
			}
			died := make(chan struct{})
			var sends atomic.Int32
			p.Watch(client, func(w lab.Produce) *lab.Trap {
				if w.Topic != s.topic+".replay" || sends.Add(1) != 2 {
					return nil
				}
				return &lab.Trap{When: when, Do: func() {
					if err := c.Kill(); err != nil {
						t.Error(err)
					}
					close(died)
				}}
			})
			j := s.apply(api, plan.Digest)
			<-died
			p.Watch(client, nil)
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			j = s.settled(j.ID, api)
			uncertain := s.statuses(api)[dlq.StatusUncertain]
			if j.Status != dlq.JobDone || j.Done+j.Uncertain != records || j.Succeeded != j.Done || j.Uncertain != uncertain {
				t.Errorf("%+v, %d uncertain", j, uncertain)
			}
			ids := s.copies(s.topic+".replay", "X-Record-Id")
			if more := twice(ids); len(more) > 0 {
				t.Errorf("sent twice: %q", more)
			}
			if len(ids) < j.Done || len(ids) > records {
				t.Errorf("%d were sent, and the job says %d of %d", len(ids), j.Done, records)
			}
			t.Logf("the broker died %s a send: %d of %d sent, each once, %d uncertain; %.1f s", when, j.Done, records, j.Uncertain, j.Ended.Sub(j.Began).Seconds())
		})
	}
}
