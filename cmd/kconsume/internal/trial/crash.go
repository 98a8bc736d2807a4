package trial

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kconsume/kconsume/plugin"
	"github.com/kconsume/kconsume/plugin/host"
)

const (
	// chances is how often a record may end the process before it is blamed.
	chances = 2
	// hopeless is how many records in a row may end a process that never
	// answered, and stubborn how many one that did, before it is given up.
	hopeless, stubborn = 3, 100
)

// down reports that the process has ended. What it had answered is in Answers
// by then.
func (r *runner) down() bool { return r.host.Status().State != host.StateRunning }

// suspect finds out which of the records that were in flight when the process
// ended is to blame: each is delivered to a process that has nothing else.
func (r *runner) suspect(ctx context.Context) error {
	r.bury()
	var suspects []*task
	for _, handle := range slices.Sorted(maps.Keys(r.flying)) {
		suspects = append(suspects, r.flying[handle])
	}
	clear(r.flying)
	for _, t := range suspects {
		if err := r.alone(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// bury takes the last answers of a process that has ended, and why it did.
func (r *runner) bury() string {
	why := cmp.Or(r.host.Status().LastExit, "it ended")
	_ = r.stop() // there is nothing left to be stopped
	return why
}

// alone delivers one record with nothing beside it.
func (r *runner) alone(ctx context.Context, t *task) error {
	why := ""
	for range chances {
		if err := r.start(ctx); err != nil {
			return err
		}
		r.host.Deliver([]plugin.Delivery{r.fly(t)})
		var err error
		if why, err = r.outlive(ctx); err != nil {
			return err
		}
		if why == "" {
			if len(r.late) > 0 {
				_ = r.stop() // or the next one would not be alone
			}
			return nil
		}
		clear(r.flying)
	}
	t.crash = why
	r.leave(t)
	r.deaths++
	if r.deaths >= stubborn || r.deaths >= hopeless && r.answered == 0 {
		return fmt.Errorf("the handler's process ends of every record, of %d in a row, so it is not the records: kconsume run would pause and blame none of them: %s", r.deaths, why)
	}
	return nil
}

// outlive waits until the delivery in flight is answered, or says how the
// process ended without an answer.
func (r *runner) outlive(ctx context.Context) (why string, err error) {
	tick := time.NewTicker(looks)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case a := <-r.host.Answers():
			r.take(a)
		case <-tick.C:
			if r.down() {
				why = r.bury()
			}
		}
		if len(r.flying) == 0 {
			return "", nil
		}
		if why != "" {
			return why, nil
		}
	}
}
