package trial

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kconsume/kconsume/engine"
	"github.com/kconsume/kconsume/plugin"
	"github.com/kconsume/kconsume/plugin/host"
)

const (
	// looks is how often the process is looked at while answers are waited for.
	looks = 10 * time.Millisecond
	// lateWait is how long calls that outlived their deadline may keep others of
	// their keys waiting before the process is started anew.
	lateWait = time.Second
	// never is longer than any trial: the host is to start no process by itself.
	never = 1000 * time.Hour
)

// runner hands records to a process, and starts another one after a crash. One
// goroutine owns it.
type runner struct {
	cfg     Config
	preview *engine.Preview
	host    *host.Host // nil = none runs
	handler string     // name@version, "" = none ran yet
	notes   []string

	ready []*task // to be delivered, in order
	// behind are the tasks behind another one of their key, by keys that are
	// taken; waiting is their number.
	behind  map[string][]*task
	waiting int
	flying  map[uint64]*task // by handle
	late    map[uint64]*task // answered, and the call still runs
	next    uint64           // handle
	blocked time.Time        // since when only late calls are in the way

	answered int // deliveries, in all
	deaths   int // records in a row that ended the process
}

func (r *runner) note(text string) {
	if !slices.Contains(r.notes, text) {
		r.notes = append(r.notes, text)
	}
}

// start makes sure that a process runs.
func (r *runner) start(ctx context.Context) error {
	if r.host != nil {
		return nil
	}
	c := r.cfg.Host
	c.Concurrency = r.cfg.Engine.Concurrency
	c.BackoffMin, c.BackoffMax = never, never
	h, err := host.Start(ctx, c)
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil && r.handler != "":
		return fmt.Errorf("start the handler again: %w", err)
	case err != nil:
		return err
	}
	hello := h.Hello()
	r.host, r.handler = h, hello.Name+"@"+hello.Version
	return nil
}

// stop ends the process and takes the answers that there still are. What is not
// answered by then stays among those in flight.
func (r *runner) stop() error {
	if r.host == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // there is no waiting for answers
	h := r.host
	stopped := make(chan error, 1)
	go func() { stopped <- h.Stop(ctx) }()
	for a := range h.Answers() {
		r.take(a)
	}
	r.host = nil
	return <-stopped
}

// round delivers each task once, at most Concurrency at a time, and of each key
// one at a time and in order.
func (r *runner) round(ctx context.Context, tasks []*task) error {
	r.ready, r.behind, r.waiting, r.flying = nil, map[string][]*task{}, 0, map[uint64]*task{}
	for _, t := range r.late {
		r.behind[t.key] = nil
	}
	for _, t := range tasks {
		r.queue(t)
	}
	tick := time.NewTicker(looks)
	defer tick.Stop()
	for len(r.flying)+len(r.ready)+r.waiting > 0 {
		if err := r.start(ctx); err != nil {
			return err
		}
		r.send()
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case a := <-r.host.Answers():
			r.take(a)
		case <-tick.C:
			if err := r.look(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// queue makes a task ready, or puts it behind the one that has its key.
func (r *runner) queue(t *task) {
	if t.key != "" {
		if behind, taken := r.behind[t.key]; taken {
			r.behind[t.key] = append(behind, t)
			r.waiting++
			return
		}
		r.behind[t.key] = nil
	}
	r.ready = append(r.ready, t)
}

// leave frees a task's key for the next one.
func (r *runner) leave(t *task) {
	behind := r.behind[t.key]
	if len(behind) == 0 {
		delete(r.behind, t.key)
		return
	}
	r.ready, r.behind[t.key] = append(r.ready, behind[0]), behind[1:]
	r.waiting--
}

// send delivers what is ready as far as there is room.
func (r *runner) send() {
	var batch []plugin.Delivery
	for len(r.ready) > 0 && len(r.flying) < r.cfg.Engine.Concurrency {
		batch = append(batch, r.fly(r.ready[0]))
		r.ready = r.ready[1:]
	}
	if len(batch) > 0 {
		r.host.Deliver(batch)
	}
}

// fly is the delivery of a task.
func (r *runner) fly(t *task) plugin.Delivery {
	r.next++
	r.flying[r.next] = t
	return plugin.Delivery{Handle: r.next, Message: t.message, Timeout: r.cfg.Engine.HandlerTimeout}
}

// take settles what was answered.
func (r *runner) take(a plugin.Answers) {
	ack := plugin.Verdict{Class: plugin.ClassAck}
	for _, h := range a.Acked {
		r.answer(h, &ack, false)
	}
	for i := range a.Verdicts {
		v := &a.Verdicts[i]
		r.answer(v.Handle, &v.Verdict, v.Late)
	}
	for _, h := range a.Ended {
		if t := r.late[h]; t != nil {
			delete(r.late, h)
			r.leave(t)
		}
	}
}

func (r *runner) answer(handle uint64, v *plugin.Verdict, late bool) {
	t := r.flying[handle]
	if t == nil {
		return
	}
	delete(r.flying, handle)
	if late {
		r.late[handle] = t
	} else {
		r.leave(t)
	}
	t.steps = append(t.steps, r.step(t, v))
	if v.Reason != plugin.ReasonOversize { // else the host answered
		r.answered++
		r.deaths = 0
	}
}

// step is what becomes of the delivery under way.
func (r *runner) step(t *task, v *plugin.Verdict) Step {
	f, err := r.preview.Forecast(&t.message, v)
	if err != nil {
		panic(err) // the same topic was good for its message
	}
	return Step{t.message.Attempt, t.message.Stage, f}
}

// look does what has to be done without an answer: after a crash the records
// that were in flight go alone, and calls that do not end give way.
func (r *runner) look(ctx context.Context) error {
	if r.down() {
		return r.suspect(ctx)
	}
	if len(r.flying)+len(r.ready) > 0 {
		r.blocked = time.Time{}
		return nil
	}
	switch {
	case r.blocked.IsZero():
		r.blocked = time.Now()
	case time.Since(r.blocked) > lateWait:
		r.blocked = time.Time{}
		r.note("calls ran on past their deadline and kept records of their keys waiting: the process was started anew")
		return r.stop()
	}
	return nil
}
