// Package trial hands records to a real handler process, as the engine would,
// and tells what would become of each. There is no Kafka: nothing is waited for
// and nothing is written.
package trial

import (
	"context"
	"fmt"

	"github.com/kconsume/kconsume/admin/export"
	"github.com/kconsume/kconsume/engine"
	"github.com/kconsume/kconsume/engine/record"
	"github.com/kconsume/kconsume/plugin"
	"github.com/kconsume/kconsume/plugin/host"
)

// FatePause is what becomes of a record that ends its handler's process while
// no other record was answered: the partitions pause, for it may be the handler.
const FatePause engine.Fate = "pause"

// Config says which handler is tried, and under which settings.
type Config struct {
	Host host.Config
	// Engine is what decides over records: see engine.NewPreview. Its
	// HandlerTimeout and Concurrency are the deliveries'.
	Engine engine.Config
	// Topic is the topic of records that name none.
	Topic string
	// Settle delivers a record that is to be retried again at once, with the
	// next attempt's number, until it is done or a dead letter.
	Settle bool
}

// Step is one delivery of a record and what becomes of it.
type Step struct {
	Attempt int
	From    string // the stage that it is delivered from
	engine.Forecast
}

// Result is one record's.
type Result struct {
	Record int // its number in the input, from 1
	ID     string
	Steps  []Step // in order, at least one; one alone without Settle
}

// Last is what became of the record in the end.
func (r *Result) Last() *Step { return &r.Steps[len(r.Steps)-1] }

// Report is what a trial showed.
type Report struct {
	Handler string   // name@version
	Results []Result // in the order of the input
	Notes   []string // what is to be said about the process itself
}

// Run tries every record. It ends in any case: deliveries have their deadlines,
// and a record that ends the process is not given to it a third time. On an
// error the report holds the results of the records that come before the first
// one without a result.
func Run(ctx context.Context, c Config, records []export.Record) (*Report, error) {
	r := &runner{cfg: c, preview: engine.NewPreview(c.Engine), late: map[uint64]*task{}}
	tasks, err := r.tasks(records)
	if err != nil {
		return &Report{}, err
	}
	if err := r.start(ctx); err != nil {
		return &Report{}, err
	}
	err = r.all(ctx, tasks)
	if stopped := r.stop(); stopped != nil && err == nil {
		r.note(stopped.Error())
	}
	return r.report(tasks), err
}

// task is a record on its way.
type task struct {
	number  int
	message plugin.Message // of the delivery under way, or the next one
	key     string         // what it occupies; "" = nothing
	steps   []Step
	crash   string // how the process ended of it, "" = it did not
}

// done reports whether nothing is left to be done with the task.
func (t *task) done(settle bool) bool {
	if t.crash != "" {
		return true
	}
	n := len(t.steps)
	return n > 0 && (!settle || t.steps[n-1].Fate != engine.FateRetry)
}

func (r *runner) tasks(records []export.Record) ([]*task, error) {
	var tasks []*task
	for i := range records {
		in := &records[i]
		rec := record.Record{Offset: in.Offset, Timestamp: in.Timestamp, Key: in.Key, Value: in.Value, Headers: in.Headers}
		if rec.Offset < 0 {
			rec.Offset = int64(i)
		}
		topic := in.Topic
		if topic == "" {
			topic = r.cfg.Topic
		}
		m, err := r.preview.Message(topic, in.Partition, &rec, max(in.Attempt, 1))
		if err != nil {
			return nil, fmt.Errorf("record %d: %w", i+1, err)
		}
		t := &task{number: i + 1, message: m}
		if m.Key != nil {
			t.key = fmt.Sprintf("%s/%d/%s", m.Topic, m.Partition, m.Key)
		}
		tasks = append(tasks, t)
	}
	return tasks, nil
}

// all runs rounds: the first deliveries of all records, then the second ones of
// those that are retried, and so on.
func (r *runner) all(ctx context.Context, tasks []*task) error {
	for left := tasks; len(left) > 0; {
		if err := r.round(ctx, left); err != nil {
			return err
		}
		var again []*task
		for _, t := range left {
			if !t.done(r.cfg.Settle) {
				last := t.steps[len(t.steps)-1]
				t.message.Attempt, t.message.Stage = last.Attempt+1, last.Stage
				again = append(again, t)
			}
		}
		left = again
	}
	return nil
}

// report decides over the records that ended the process: they are dead letters
// if the handler has answered others, for then it is not the handler.
func (r *runner) report(tasks []*task) *Report {
	out := &Report{Handler: r.handler, Notes: r.notes}
	for _, t := range tasks {
		if t.crash != "" {
			t.steps = append(t.steps, r.crashed(t))
		}
		if len(t.steps) == 0 {
			break
		}
		out.Results = append(out.Results, Result{Record: t.number, ID: t.message.ID, Steps: t.steps})
	}
	return out
}

func (r *runner) crashed(t *task) Step {
	s := r.step(t, &plugin.Verdict{
		Class: plugin.ClassPermanent, Reason: plugin.ReasonHandlerCrash,
		Message: "it ends the handler's process: " + t.crash,
	})
	if r.answered == 0 {
		s.Fate, s.Topic, s.Stage = FatePause, "", ""
	}
	return s
}
