package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kconsume/kconsume/plugin"
)

// outTopic is where handlers emit to. Its records have to arrive before what
// they come from is committed.
const outTopic = "out"

// emit has a delivery emit what its record's script says.
func emit(d *delivery, msg *plugin.Message) {
	for range d.rec.in.Emits {
		msg.Emit(plugin.Record{Topic: outTopic, Key: d.rec.in.Key, Value: d.rec.in.Value})
	}
}

// emittedAll reports whether everything that a record emits has arrived.
func (r *record) emittedAll() bool { return r.emitted == 1<<r.in.Emits-1 }

// parseEmission reads a record that was emitted: which one it came from, and its
// number. Its content is what the handler made of it (I9).
func (l *ledger) parseEmission(tp topicPartition, r *kmsgRecord) (*record, int, error) {
	if len(r.headers) != 1 || r.headers[0].key != "X-Emit-Id" {
		return nil, 0, fmt.Errorf("an emission with headers %q", r.headers)
	}
	id, number, _ := strings.Cut(string(r.headers[0].value), "#")
	n, err := strconv.Atoi(number)
	fields := strings.FieldsFunc(id, func(c rune) bool { return c == '/' || c == '@' })
	if err != nil || len(fields) != 4 {
		return nil, 0, fmt.Errorf("an emission with the id %q", r.headers[0].value)
	}
	partition, _ := strconv.Atoi(fields[1])
	offset, _ := strconv.ParseInt(fields[2], 10, 64)
	timestamp, _ := strconv.ParseInt(fields[3], 10, 64)
	rec := l.input(int32(partition), offset, timestamp)
	if rec == nil || rec.id() != id || n < 0 || n >= rec.in.Emits {
		return nil, 0, fmt.Errorf("an emission with the id %q", r.headers[0].value)
	}
	if !sameBytes(r.key, rec.in.Key) || !sameBytes(r.value, rec.in.Value) {
		l.violate("I9", "%s emitted to %v key %q, value %q", id, tp, r.key, r.value)
	}
	return rec, n, nil
}

// emitting checks an emission that a member sends: I2 of it is that the member's
// handler has acknowledged its record.
func (l *ledger) emitting(m *member, tp topicPartition, r *kmsgRecord) {
	rec, n, err := l.parseEmission(tp, r)
	if err != nil {
		l.violate("I2", "%s writes to %v: %v", m.name, tp, err)
		return
	}
	l.history.add(event{what: "emission", member: m.name, rec: rec, note: tp.String(), n: n})
	if m.crashed {
		return
	}
	if !slices.ContainsFunc(rec.sent, func(d *delivery) bool { return d.member == m && d.verdict.kind == verdictHandled }) {
		l.violate("I2", "%s emits what %s emits, which its handler has not acknowledged", m.name, rec.id())
	}
	if l.quiet && rec.emitted&(1<<n) != 0 && !slices.ContainsFunc(rec.sent, func(d *delivery) bool { return d.member.cutOff }) {
		l.violate("I7", "%s emits number %d of %s again, in the quiet time", m.name, n, rec.id())
	}
}
