package operate

import (
	"net/http"
	"strings"
	"testing"

	"github.com/kconsume/kconsume/admin/dlq"
	"github.com/kconsume/kconsume/test/operate/lab"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A daemon dies when its copies are written and it does not know; before it is
// back the brokers have deleted what would tell. Then nobody can know: the
// records are uncertain, none is sent again, and a person decides.
func TestUncertain(t *testing.T) {
	t.Parallel()
	const records = 10
	s := newScene(t, "uncertain", 1)
	s.letters(0, records, handled())
	d, client := s.start()
	plan := s.plan(d.As(lab.OperatorToken), dlq.PlanRequest{Reason: "the gateway is back", Rate: 10_000})
	sent := 0
	killed := s.killAt(d, client, point{step: "send", n: 1, when: lab.After}, func() { sent = s.empty(s.topic+".replay", allOfIt) })
	api := d.As(lab.OperatorToken)
	j := s.applyThrough(killed, plan.Digest, "once", api)
	lab.Until(t, "the daemon is killed", killed.fired)
	if sent == 0 {
		t.Fatal("the daemon was killed before it sent anything")
	}
	killed.restart(t)

	j = s.ended(j.ID, api)
	if j.Status != dlq.JobDone || j.Uncertain != sent || j.Done != records-sent || !strings.Contains(j.Note, "uncertain") {
		t.Errorf("%d were sent, and the job is %+v", sent, j)
	}
	if n := len(s.copies(s.topic+".replay", "X-Record-Id")); n != records-sent {
		t.Errorf("%d records were sent after that, want the %d others", n, records-sent)
	}
	if st := s.statuses(api); st[dlq.StatusUncertain] != sent {
		t.Errorf("the dead letters are %v", st)
	}

	// Who knows that the first one was not handled restores it and sends it.
	s.act(api, 0, "restore", "the ledger has it not")
	again := s.plan(api, dlq.PlanRequest{Reason: "the ledger has it not", Selection: dlq.Selection{Positions: []dlq.Position{{Offset: 0}}}})
	if j := s.settled(s.apply(api, again.Digest).ID, api); j.Done != 1 || j.Succeeded != 1 {
		t.Errorf("sent again: %+v", j)
	}
	if st := s.statuses(api); st[dlq.StatusUncertain] != sent-1 {
		t.Errorf("after that the dead letters are %v", st)
	}
	got := api.Do(t, http.MethodPost, s.at(dlq.Position{Offset: 1})+"/resolve", map[string]string{"reason": "the ledger has it"})
	if got.Status != http.StatusOK {
		t.Errorf("resolve: %v", got)
	}
}

// allOfIt is up to the end of a partition.
const allOfIt = -1

// empty has the brokers delete what is in partition 0 of a topic up to an offset,
// and returns how many they have deleted by then.
func (s *scene) empty(topic string, upto int64) int {
	client, err := kgo.NewClient(kgo.SeedBrokers(s.bootstrap))
	if err != nil {
		s.t.Error(err)
		return 0
	}
	defer client.Close()
	offsets := kadm.Offsets{}
	offsets.AddOffset(topic, 0, upto, -1)
	res, err := kadm.NewClient(client).DeleteRecords(wait(s.t), offsets)
	if err != nil || res.Error() != nil {
		s.t.Error(err, res.Error())
		return 0
	}
	gone, _ := res.Lookup(topic, 0)
	return int(gone.LowWatermark)
}
