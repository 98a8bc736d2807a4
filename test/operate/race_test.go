package operate

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kconsume/kconsume/admin/dlq"
	"github.com/kconsume/kconsume/test/operate/lab"
)

// Two operators at two daemons want the same 50 records at once, again and again:
// each is sent once, who lost is told so, and both daemons tell the same.
func TestTwoOperators(t *testing.T) {
	t.Parallel()
	rounds := 5
	if os.Getenv(fullEnv) != "" {
		rounds = 15
	}
	s := newScene(t, "race", 2)
	a, _ := s.start()
	b, _ := s.start()
	for round := range rounds {
		s.letters(50*round, 50, handled())
		r := s.race(a, b)
		s.fifty(50*(round+1), r, b.As(lab.OperatorToken))
		s.agree(a, b)
	}
	s.clicks(a, b)
}

// The same, and the daemon that one of them uses dies between its claims and its
// sends: another one goes on.
func TestTwoOperatorsOneDies(t *testing.T) {
	rounds := 1
	if os.Getenv(fullEnv) != "" {
		rounds = 5
	}
	for round := range rounds {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Parallel()
			s := newScene(t, fmt.Sprintf("race-dies-%d", round), 2)
			a, client := s.start()
			b, _ := s.start()
			s.letters(0, 50, handled())
			killed := s.killAt(a, client, point{step: "send", n: 1, when: lab.Before})
			r := s.race(a, b)
			// Where b was faster by all 50, a has nothing to send and lives.
			if killed.fired() {
				t.Logf("killed at %s", killed.at)
			}
			s.fifty(50, r, b.As(lab.OperatorToken))
		})
	}
}

// racing is what became of three requests that were made at once.
type racing struct {
	apply, single, simple lab.Answer
	errs                  [3]error
}

func (s *scene) race(a, b *lab.Daemon) (r racing) {
	s.t.Helper()
	olga, otto := a.As(lab.OperatorToken), b.As(lab.SecondToken)
	for _, api := range []*lab.API{olga, otto} { // a daemon that has just begun has not read it yet
		var page dlq.JobPage
		lab.Until(s.t, "a daemon has read the state", func() bool { return ask(s.t, "/v1/jobs?topic="+s.dlq, &page, api) })
	}
	all := s.plan(olga, dlq.PlanRequest{Reason: "all of them"})
	if all.Records != 50 {
		s.t.Fatalf("the plan has %d records: %+v", all.Records, all)
	}
	one := s.plan(olga, dlq.PlanRequest{Reason: "one of them", Selection: dlq.Selection{Positions: all.First[:1]}})
	if one.Records != 1 {
		s.t.Fatalf("the plan of one has %d records: %+v", one.Records, one)
	}
	start := make(chan struct{})
	var done sync.WaitGroup
	for i, do := range []func() (lab.Answer, error){
		func() (lab.Answer, error) {
			return olga.Try(s.t.Context(), http.MethodPost, "/v1/plans/"+all.Digest+"/apply", nil)
		},
		func() (lab.Answer, error) {
			return olga.Try(s.t.Context(), http.MethodPost, "/v1/plans/"+one.Digest+"/apply", nil)
		},
		func() (lab.Answer, error) {
			return otto.Try(s.t.Context(), http.MethodPost, "/v1/dlq/"+s.dlq+"/replay?limit=50", nil)
		},
	} {
		into := []*lab.Answer{&r.apply, &r.single, &r.simple}[i]
		done.Go(func() {
			<-start
			*into, r.errs[i] = do()
		})
	}
	close(start)
	done.Wait()
	return r
}

// fifty checks what races of 50 records each came to, so many in all.
func (s *scene) fifty(total int, r racing, api *lab.API) {
	s.t.Helper()
	for i, got := range []lab.Answer{r.apply, r.single, r.simple} {
		// Of a daemon that is killed no answer comes.
		if ok := []int{http.StatusAccepted, http.StatusAccepted, http.StatusOK}[i]; r.errs[i] == nil && got.Status != ok && got.Status != http.StatusConflict {
			s.t.Errorf("request %d: %v", i, got)
		}
	}
	if r.errs[2] != nil {
		s.t.Errorf("the daemon that lives: %v", r.errs[2])
	}
	var page dlq.JobPage
	lab.Until(s.t, "all jobs have ended and all copies, too", func() bool {
		done, ended := 0, 0
		open := slices.ContainsFunc(s.jobs(api, &page), func(j dlq.Job) bool { return !j.Status.Ended() })
		for _, j := range page.Jobs {
			done, ended = done+j.Done, ended+j.Succeeded+j.Failed
		}
		return !open && done == total && ended == total
	})
	ids := s.copies(s.topic+".replay", "X-Record-Id")
	if more := twice(ids); len(more) > 0 {
		s.t.Errorf("sent twice: %q", more)
	}
	if more := twice(s.copies(s.topic+".replay", "X-Replay-Id")); len(more) > 0 {
		s.t.Errorf("replay ids twice: %q", more)
	}
	st := s.statuses(api)
	if len(ids) != total || st[dlq.StatusSucceeded] != total || len(st) != 1 {
		s.t.Errorf("%d records were sent, want %d; the dead letters are %v", len(ids), total, st)
	}
	for _, j := range s.jobs(api, &page) {
		if j.Done+j.Skipped != j.Records || j.Uncertain != 0 {
			s.t.Errorf("%+v does not account for its records", j)
		}
		if j.Skipped > 0 && j.Note == "" {
			s.t.Errorf("records were skipped, and it is not said why: %+v", j)
		}
	}
}

func (s *scene) jobs(api *lab.API, page *dlq.JobPage) []dlq.Job {
	s.t.Helper()
	*page = dlq.JobPage{}
	api.Get(s.t, "/v1/jobs?limit=500&topic="+s.dlq, page)
	return page.Jobs
}

// agree checks that two daemons list the same within two seconds.
func (s *scene) agree(a, b *lab.Daemon) {
	s.t.Helper()
	var at, bt map[dlq.Status]int
	for end := time.Now().Add(2 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		at, bt = s.statuses(a.As(lab.ViewerToken)), s.statuses(b.As(lab.ViewerToken))
		if maps.Equal(at, bt) {
			return
		}
		if time.Now().After(end) {
			s.t.Errorf("one daemon says %v, the other %v", at, bt)
			return
		}
	}
}

// clicks are one operator's double clicks.
func (s *scene) clicks(a, b *lab.Daemon) {
	s.t.Helper()
	before := len(s.copies(s.topic+".replay", "X-Record-Id"))
	for i, keyed := range []bool{false, true} {
		s.letters(10_000+10*i, 10, handled())
		p := s.plan(a.As(lab.OperatorToken), dlq.PlanRequest{Reason: "a double click"})
		if p.Records != 10 {
			s.t.Fatalf("%+v", p)
		}
		var header []string
		if keyed {
			header = []string{"Idempotency-Key", "click-1"}
		}
		got := make([]lab.Answer, 4)
		var done sync.WaitGroup
		for n := range got {
			api := []*lab.API{a.As(lab.OperatorToken), b.As(lab.OperatorToken)}[n%2]
			done.Go(func() {
				answer, err := api.Try(s.t.Context(), http.MethodPost, "/v1/plans/"+p.Digest+"/apply", nil, header...)
				if err != nil {
					s.t.Error(err)
				}
				got[n] = answer
			})
		}
		done.Wait()
		var codes []int
		jobs := map[string]bool{}
		for _, one := range got {
			codes = append(codes, one.Status)
			if one.Status == http.StatusAccepted {
				var j dlq.Job
				decodeAs(s.t, one, http.StatusAccepted, &j)
				jobs[j.ID] = true
			}
		}
		slices.Sort(codes)
		want := []int{202, 409, 409, 409}
		if keyed {
			want = []int{202, 202, 202, 202}
		}
		if !slices.Equal(codes, want) || len(jobs) != 1 {
			s.t.Errorf("clicks with a key %v: %v, jobs %v: %v", keyed, codes, jobs, got)
		}
		for id := range jobs {
			s.settled(id, b.As(lab.OperatorToken))
		}
	}
	ids := s.copies(s.topic+".replay", "X-Record-Id")
	if more := twice(ids); len(more) > 0 || len(ids) != before+20 {
		s.t.Errorf("after double clicks %d records were sent, want %d; twice: %q", len(ids), before+20, more)
	}
}
