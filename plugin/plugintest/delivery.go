package plugintest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/kconsume/kconsume/plugin"
	"github.com/kconsume/kconsume/plugin/internal/wire"
)

// Record is a record with this value, as it is delivered for the first time. Its
// offset is the next one, its topic the first of plugin.Config's, or "test".
// Change what the test is about; deliver it twice to have a repeated delivery.
func (h *Handler) Record(value string) plugin.Message {
	topic := "test"
	if topics := h.settings.config.Topics; len(topics) > 0 {
		topic = topics[0]
	}
	h.offset++
	return plugin.Message{
		Topic: topic, Offset: h.offset - 1, Value: []byte(value),
		Time:    time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		Attempt: 1, MaxAttempts: 3, Stage: "main",
	}
}

// JSON is Record with v as JSON.
func (h *Handler) JSON(v any) plugin.Message {
	h.t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		h.t.Fatalf("encode a record: %v", err)
	}
	return h.Record(string(b))
}

// Tombstone is a record with this key whose value is null.
func (h *Handler) Tombstone(key string) plugin.Message {
	m := h.Record("")
	m.Key, m.Value = []byte(key), nil
	return m
}

// Delivery is one record on its way.
type Delivery struct {
	h        *Handler
	handle   uint64
	record   string        // how failures call it
	verdict  Verdict       // set before answered is closed
	answered chan struct{} // closed with the answer
	ended    chan struct{} // closed at the end of the call
}

// Deliver delivers a record and waits for its verdict.
func (h *Handler) Deliver(m plugin.Message) Verdict {
	h.t.Helper()
	return h.Send(m)[0].Verdict()
}

// DeliverAll delivers records at once and waits for all verdicts, which come in
// the records' order. A handler made by plugin.Batches gets them in batches as
// large as may be.
func (h *Handler) DeliverAll(m ...plugin.Message) []Verdict {
	h.t.Helper()
	var verdicts []Verdict
	for _, d := range h.Send(m...) {
		verdicts = append(verdicts, d.Verdict())
	}
	return verdicts
}

// Send delivers records at once and does not wait.
func (h *Handler) Send(m ...plugin.Message) []*Delivery {
	h.t.Helper()
	if h.drained {
		h.t.Fatalf("deliver %d records: the handler is drained", len(m))
	}
	var f wire.HostFrame
	list := make([]*Delivery, len(m))
	for i := range m {
		h.handle++
		list[i] = &Delivery{
			h: h, handle: h.handle, record: nameOf(&m[i]),
			answered: make(chan struct{}), ended: make(chan struct{}),
		}
		fill(f.Add(len(m[i].Headers)), &m[i], h.handle, h.settings.timeout)
	}
	h.mu.Lock()
	for _, d := range list {
		h.pending[d.handle] = d
	}
	h.mu.Unlock()
	if err := h.stream.SendMsg(&f); err != nil {
		h.check()
		h.t.Fatalf("deliver %d records: %v", len(m), err)
	}
	return list
}

// Cancel cancels the call, as kconsume does when it loses the record's
// partition.
func (d *Delivery) Cancel() {
	d.h.t.Helper()
	if err := d.h.stream.SendMsg(&wire.HostFrame{Cancel: []uint64{d.handle}}); err != nil {
		d.h.t.Fatalf("cancel %s: %v", d.record, err)
	}
}

// Verdict waits for the answer.
func (d *Delivery) Verdict() Verdict {
	d.h.t.Helper()
	bound := time.NewTimer(d.h.bound())
	defer bound.Stop()
	d.wait(d.answered, bound.C, "answer to")
	return d.verdict
}

// WaitEnded waits until the call has ended, however long that takes. It is later
// than the answer where a call outlives its deadline.
func (d *Delivery) WaitEnded() {
	d.h.t.Helper()
	d.wait(d.ended, nil, "end of the call for")
}

func (d *Delivery) wait(done <-chan struct{}, bound <-chan time.Time, what string) {
	d.h.t.Helper()
	select {
	case <-done:
	case <-bound:
		d.h.t.Fatalf("no %s %s: past every deadline", what, d.record)
	case <-d.h.received:
		select {
		case <-done:
		default:
			d.h.check()
			d.h.t.Fatalf("no %s %s: the handler has ended", what, d.record)
		}
	}
	d.h.check()
}

func nameOf(m *plugin.Message) string {
	return fmt.Sprintf("%s/%d@%d", m.Topic, m.Partition, m.Offset)
}

// fill writes a delivery as kconsume does.
func fill(r *wire.Record, m *plugin.Message, handle uint64, timeout time.Duration) {
	r.Handle, r.ID, r.Topic, r.Partition, r.Offset = handle, m.ID, m.Topic, m.Partition, m.Offset
	r.TimeMS = -1
	if !m.Time.IsZero() {
		r.TimeMS = m.Time.UnixMilli()
	}
	r.Key, r.Value = m.Key, m.Value
	for i := range m.Headers {
		r.Headers[i] = wire.Header(m.Headers[i])
	}
	r.Attempt, r.MaxAttempts, r.Stage = uint32(max(m.Attempt, 1)), uint32(max(m.MaxAttempts, m.Attempt, 1)), cmp.Or(m.Stage, "main")
	r.Trace, r.TraceState = m.Trace.Parent, m.Trace.State
	if timeout > 0 {
		r.TimeoutMS = uint32(min((timeout-1)/time.Millisecond+1, wire.MaxTimeoutMS))
	}
}

// verdictOf reads an answer.
func verdictOf(w *wire.Verdict) plugin.Verdict {
	v := plugin.Verdict{
		Reason: plugin.Reason(w.Reason), Code: w.Code, Message: w.Message, Causes: w.Causes, Stack: w.Stack, Rule: w.Rule,
		RetryAfter: time.Duration(min(w.RetryAfterMS, uint64(math.MaxInt64/time.Millisecond))) * time.Millisecond,
	}
	if w.Class > wire.ClassUnspecified && w.Class <= wire.ClassDrop {
		v.Class = plugin.Class(w.Class)
	}
	for _, e := range w.Emitted {
		r := plugin.Record{Topic: e.Topic, Key: e.Key, Value: e.Value}
		for _, header := range e.Headers {
			r.Headers = append(r.Headers, plugin.Header(header))
		}
		v.Emitted = append(v.Emitted, r)
	}
	return v
}
