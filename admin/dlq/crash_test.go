package dlq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kconsume/kconsume/admin/dlq/state"
	"github.com/kconsume/kconsume/engine/history"
)

// sentOnce fails the test unless each of n dead letters lies in the target once,
// under one replay id, or is shown as uncertain; nothing may be lost.
func (w *world) sentOnce(d *daemon, n int, told string) {
	w.t.Helper()
	ids := map[string][]string{}
	for _, r := range w.read("t.replay") {
		h := headersOf(r)
		ids[h[history.HeaderRecordID]] = append(ids[h[history.HeaderRecordID]], h[history.HeaderReplayID])
	}
	for _, m := range d.list() {
		copies := ids[m.ID]
		switch {
		case m.State.Status == StatusUncertain:
		case m.State.Status != StatusReplayed && m.State.Status != StatusSucceeded:
			w.t.Errorf("%s: %v is %s", told, m.Position, m.State.Status)
		case len(copies) != 1:
			w.t.Errorf("%s: %v has the copies %v", told, m.Position, copies)
		}
		delete(ids, m.ID)
	}
	if len(ids) > 0 {
		w.t.Errorf("%s: copies of nothing: %v", told, ids)
	}
}

// A daemon dies before and after each of its writes, and at the start of the
// next one everything is sent once.
func TestKillAtEveryStep(t *testing.T) {
	points := map[string]int{}
	for step := 1; ; step++ {
		done := 0
		for i := range 4 {
			written, canary := i%2 == 1, i/2 == 1
			inWorld(t, 2, func(w *world) {
				const n = 12
				w.bury(n, nil)
				d := w.daemon("a")
				p := d.plan(PlanRequest{Action: ActionReplay, Rate: 6, Canary: canary}, ada)
				count := 0
				died := make(chan string, 1)
				d.on(func(what string, do func() error) error {
					d.mu.Lock()
					count++
					now := count
					d.mu.Unlock()
					switch {
					case now < step:
						return do()
					case now > step:
						return state.ErrStopped
					case written:
						if err := do(); err != nil {
							w.t.Error(err)
						}
					}
					died <- what
					return state.ErrStopped
				})
				j, err := d.Apply(w.t.Context(), p.Digest, "key", ada)
				what, alive := "", false
				w.engine(canary, func() {
					if err != nil {
						what = <-died
						return
					}
					select {
					case what = <-died:
					case <-time.After(2 * time.Minute):
						alive = true
					}
				})
				if alive { // it needs fewer steps
					done++
					w.sentOnce(d, n, "undisturbed")
					d.end()
					return
				}
				points[what]++
				d.kill()
				told := fmt.Sprintf("killed at %s, step %d, written %v, canary %v", what, step, written, canary)
				b := w.daemon("b")
				defer b.end()
				again, err := b.Apply(w.t.Context(), p.Digest, "key", ada)
				if err != nil {
					w.t.Fatalf("%s: %v", told, err)
				}
				if j.ID != "" && again.ID != j.ID {
					w.t.Errorf("%s: job %s became %s", told, j.ID, again.ID)
				}
				var got Job
				w.engine(canary, func() { got = b.wait(again.ID) })
				if got.Status != JobDone || got.Done+got.Uncertain != n {
					w.t.Errorf("%s: %+v", told, got)
				}
				w.sentOnce(b, n, told)
			})
		}
		if done == 4 || t.Failed() {
			break
		}
	}
	t.Logf("killed at %v", points)
	for _, what := range []string{"audit", "apply", "begin", "job", "claim", "send", "sent"} {
		if points[what] < 2 {
			t.Errorf("it was never killed at %s", what)
		}
	}
}

// engine answers for the engine while f runs, if it is on. Its outcomes would
// otherwise tell what a service has to find out.
func (w *world) engine(on bool, f func()) {
	stop := make(chan struct{})
	var wait sync.WaitGroup
	if on {
		wait.Go(func() {
			for going := true; going; {
				w.handle("t.replay", all)
				select {
				case <-time.After(5 * time.Second):
				case <-stop:
					going = false
				}
			}
		})
	}
	f()
	close(stop)
	wait.Wait()
}

// A clean stop leaves the rest to others at once; nothing is sent twice.
func TestStopHandsOver(t *testing.T) {
	inWorld(t, 2, func(w *world) {
		w.bury(40, nil)
		a, b := w.daemon("a"), w.daemon("b")
		defer b.end()
		j := a.apply(a.plan(PlanRequest{Action: ActionReplay, Rate: 4}, ada).Digest)
		time.Sleep(5 * time.Second)
		began := time.Now()
		a.end()
		if took := time.Since(began); took > time.Second {
			w.t.Errorf("the stop took %v", took)
		}
		got := b.wait(j.ID)
		if got.Done != 40 || got.Runner != "b" || time.Since(began) > 12*time.Second {
			w.t.Errorf("%+v after %v", got, time.Since(began))
		}
		w.sentOnce(b, 40, "handed over")
	})
}

// A daemon that cannot renew its lease sends nothing more; whoever takes the job
// over does.
func TestLeaseLost(t *testing.T) {
	inWorld(t, 2, func(w *world) {
		w.bury(60, nil)
		a, b := w.daemon("a"), w.daemon("b")
		defer b.end()
		defer a.end()
		p := a.plan(PlanRequest{Action: ActionReplay, Rate: 1}, ada)
		var cut time.Time
		late := 0
		a.on(func(what string, do func() error) error {
			a.mu.Lock()
			since := cut
			a.mu.Unlock()
			if since.IsZero() {
				return do()
			}
			if what == "send" && time.Since(since) > leaseUse {
				late++
			}
			if what == "job" {
				return errors.New("no way to the brokers")
			}
			return do()
		})
		j := a.apply(p.Digest)
		time.Sleep(6 * time.Second)
		a.mu.Lock()
		cut = time.Now()
		a.mu.Unlock()
		got := b.wait(j.ID)
		if got.Done != 60 || got.Runner != "b" {
			w.t.Errorf("%+v", got)
		}
		if late > 0 {
			w.t.Errorf("%d sends after the lease", late)
		}
		w.sentOnce(b, 60, "taken over")
	})
}

// A daemon that is frozen between its claims and its sends, until another has its
// job, sends nothing when it wakes.
func TestFrozenBetweenClaimAndSend(t *testing.T) {
	inWorld(t, 2, func(w *world) {
		w.bury(10, nil)
		a, b := w.daemon("a"), w.daemon("b")
		defer b.end()
		defer a.end()
		p := a.plan(PlanRequest{Action: ActionReplay}, ada)
		var mu sync.Mutex
		var thaw time.Time
		a.on(func(what string, do func() error) error {
			err := do()
			mu.Lock()
			if what == "claim" && thaw.IsZero() {
				thaw = time.Now().Add(time.Minute)
			}
			until := thaw
			mu.Unlock()
			if what != "send" { // nothing goes on in it
				time.Sleep(time.Until(until))
			}
			return err
		})
		j := a.apply(p.Digest)
		if got := b.wait(j.ID); got.Done != 10 || got.Runner != "b" {
			w.t.Errorf("%+v", got)
		}
		time.Sleep(2 * time.Minute)
		w.sentOnce(b, 10, "thawed")
	})
}

func TestLeaseHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lease{}
		if l.holds() {
			t.Error("a lease that nobody has confirmed holds")
		}
		r := &runner{lease: l, q: &queue{hook: func(string, func() error) error { t.Error("something is sent without a lease"); return nil }}}
		if err := r.send(t.Context(), []claimed{{letter: &letter{}}}); !errors.Is(err, errUnknown) {
			t.Errorf("a send without a lease: %v", err)
		}
		l.confirm(time.Now())
		time.Sleep(leaseUse - 1)
		if !l.holds() {
			t.Error("it ended early")
		}
		time.Sleep(time.Nanosecond)
		if l.holds() {
			t.Error("it holds on")
		}
		// The host slept: only the wall's clock went on.
		l.confirm(time.Now().Round(0).Add(-time.Hour))
		if l.holds() {
			t.Error("it holds after an hour's sleep")
		}
	})
}

// The daemon that received a cancellation need not be the one that runs the job,
// and that one may be dead.
func TestCancelElsewhere(t *testing.T) {
	for _, dead := range []bool{false, true} {
		inWorld(t, 1, func(w *world) {
			w.bury(30, nil)
			a, b := w.daemon("a"), w.daemon("b")
			defer b.end()
			j := a.apply(a.plan(PlanRequest{Action: ActionReplay, Rate: 1}, ada).Digest)
			time.Sleep(5 * time.Second)
			if dead {
				a.kill()
			} else {
				defer a.end()
			}
			got, err := b.Cancel(w.t.Context(), j.ID, "stop", ada)
			if err != nil {
				w.t.Fatal(err)
			}
			if !dead && got.Status != JobCancelled {
				w.t.Errorf("%+v", got)
			}
			got = b.wait(j.ID)
			if n := len(w.read("t.replay")); got.Status != JobCancelled || got.Done != n || n > 8 {
				w.t.Errorf("%+v, %d copies", got, n)
			}
		})
	}
}

// Two operators at two daemons want the same fifty records in three ways at the
// same instant, and in some rounds one daemon dies between its claims and its
// sends. No record is sent twice, and the numbers add up.
func TestTwoDaemonsRace(t *testing.T) {
	for round := range 20 {
		inWorld(t, 2, func(w *world) {
			const n = 50
			w.bury(n, nil)
			a, b := w.daemon("a"), w.daemon("b")
			defer b.end()
			planA := a.plan(PlanRequest{Action: ActionReplay}, ada)
			one := a.plan(PlanRequest{Action: ActionReplay, Selection: Selection{Positions: []Position{{0, 3}}}}, ada)
			died := make(chan struct{})
			if round < 5 {
				var once sync.Once
				a.on(func(what string, do func() error) error {
					if what != "send" {
						return do()
					}
					once.Do(func() { close(died) })
					a.on(func(string, func() error) error { return state.ErrStopped })
					return state.ErrStopped
				})
			}
			var jobA, jobOne, jobB Job
			var errA, errOne, errB error
			sentB := 0
			var racing sync.WaitGroup
			ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
			racing.Go(func() { jobA, errA = a.Apply(ctx, planA.Digest, "", ada) })
			racing.Go(func() { sentB, jobB, errB = b.Replay(ctx, "t.dlq", n, "", admin) })
			racing.Go(func() { jobOne, errOne = a.Apply(ctx, one.Digest, "", admin) })
			racing.Wait()
			cancel()
			if round < 5 {
				select {
				case <-died:
				case <-time.After(time.Second): // it was not to send anything
				}
				a.kill()
			}
			for _, err := range []error{errA, errOne, errB} {
				if err != nil && KindOf(err) != KindConflict && !(round < 5 && KindOf(err) == KindUnavailable) {
					w.t.Errorf("round %d: %v", round, err)
				}
			}
			b.sync()
			sum := 0
			for _, j := range []Job{jobA, jobOne, jobB} {
				if j.ID == "" {
					continue
				}
				got := b.wait(j.ID)
				if sum += got.Done + got.Uncertain; got.Done+got.Uncertain+got.Skipped != got.Records {
					w.t.Errorf("round %d: %+v", round, got)
				}
				if j.ID == jobB.ID && errB == nil && sentB != got.Done {
					w.t.Errorf("round %d: %d replayed, the job says %d", round, sentB, got.Done)
				}
			}
			rest := b.statuses()
			if rest[StatusReplayed]+rest[StatusUncertain] != sum || rest[StatusClaimed] > 0 {
				w.t.Errorf("round %d: the jobs say %d, the DLQ %v", round, sum, rest)
			}
			ids := map[string]int{}
			for _, r := range w.read("t.replay") {
				ids[headersOf(r)[history.HeaderRecordID]]++
			}
			for id, k := range ids {
				if k != 1 {
					w.t.Errorf("round %d: %s was sent %d times", round, id, k)
				}
			}
			if rest[StatusNew] > 0 { // somebody was refused: it can be done now
				if m, _, err := b.Replay(w.t.Context(), "t.dlq", n, "", ada); err != nil || m != rest[StatusNew] {
					w.t.Errorf("round %d: then %d, %v, of %v", round, m, err, rest)
				}
			}
			w.sentOnce(b, n, fmt.Sprint("round ", round))
			if round >= 5 {
				if x, y := fmt.Sprint(a.statuses()), fmt.Sprint(b.statuses()); x != y {
					w.t.Errorf("round %d: a says %s, b says %s", round, x, y)
				}
				a.end()
			}
		})
	}
}
