package sim

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// forwardSent is a forward that a member has sent to the brokers.
type forwardSent struct {
	tp     topicPartition
	rec    *record
	failed int
	due    int64     // unix ms, 0 = none
	of     *delivery // nil: a waiting record that is written again
}

// forwarding checks what a member sends to be written, and returns what it needs
// to know again when the answer comes.
func (l *ledger) forwarding(m *member, tp topicPartition, rs []kmsgRecord) (sent []*forwardSent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range rs {
		if tp.topic == outTopic {
			l.emitting(m, tp, &rs[i])
			continue
		}
		f, err := l.parse(tp, &rs[i])
		if err != nil {
			l.violate("I2", "%s writes to %v: %v", m.name, tp, err)
			continue
		}
		l.history.add(event{what: "forward", member: m.name, rec: f.rec, note: tp.String(), n: f.failed})
		if m.crashed {
			continue // it was on its way
		}
		l.checkForward(m, f)
		sent = append(sent, f)
	}
	return sent
}

// parse reads a forward, which is I9: its content is the input's.
func (l *ledger) parse(tp topicPartition, r *kmsgRecord) (*forwardSent, error) {
	own, ours := splitHeaders(r.headers)
	num := func(name string) int64 {
		n, err := strconv.ParseInt(ours[name], 10, 64)
		if err != nil {
			return -1
		}
		return n
	}
	if !slices.Contains(forwardTopics(), tp.topic) {
		return nil, fmt.Errorf("not one of its topics")
	}
	rec := l.input(int32(num("X-Original-Partition")), num("X-Original-Offset"), num("X-Original-Timestamp"))
	if rec == nil || ours["X-Original-Topic"] != mainTopic || ours["X-Record-Id"] != rec.id() {
		return nil, fmt.Errorf("a record that was not produced: %v", ours)
	}
	if !sameBytes(r.key, rec.in.Key) || !sameBytes(r.value, rec.in.Value) || !sameHeaders(own, headersOf(rec.in.Headers)) || ours["X-Retry-Group"] != group {
		l.violate("I9", "%s was forwarded with key %q, value %q, headers %q", rec.id(), r.key, r.value, own)
	}
	if rec.partition != tp.partition {
		l.violate("I8", "%s was forwarded to %v, away from its partition", rec.id(), tp)
	}
	f := &forwardSent{tp: tp, rec: rec, failed: int(num("X-Retry-Attempts")), due: max(0, num("X-Retry-Due"))}
	if tp.topic == dlqTopic && ours["X-Error-Class"] == "" {
		l.violate("I9", "%s is in the DLQ without a class", rec.id())
	}
	return f, nil
}

// ourName reports whether a header is one that forwards carry beside the record's own.
func ourName(name string) bool {
	switch name {
	case "X-Retry-Attempts", "X-Retry-Due", "X-Retry-Group", "X-Original-Topic", "X-Original-Partition", "X-Original-Offset",
		"X-Original-Timestamp", "X-First-Failure-Time", "X-Error-Class", "X-Error-Code", "X-Error-Message", "X-Error-Time",
		"X-Handler", "X-Record-Id", "X-Replay-Id", "X-Replay-Count":
		return true
	}
	return false
}

func splitHeaders(hs []header) (own []header, ours map[string]string) {
	ours = map[string]string{}
	for _, h := range hs {
		if ourName(h.key) {
			ours[h.key] = string(h.value)
		} else {
			own = append(own, h)
		}
	}
	return own, ours
}

// checkForward finds what a forward is of: the failed delivery of this member
// that its due time fits best, or, while it stops, a waiting record with the same
// due time.
func (l *ledger) checkForward(m *member, f *forwardSent) {
	fits, told, best := 0, 0, int64(maxLate+1)
	for _, d := range f.rec.sent {
		if d.member != m || d.attempt != f.failed {
			continue
		}
		topic, due := l.route(d)
		late := lateness(f.due, due)
		if !due.IsZero() && late > 0 { // who stood still learned of the failure when it went on
			late = max(0, late-m.still.since(d.verdict.at).Milliseconds())
		}
		if topic != f.tp.topic || late < 0 || late > best {
			continue
		}
		if late < best {
			fits, told, best, f.of = 0, 0, late, nil
		}
		if f.of == nil || d.answered < f.of.answered {
			f.of = d
		}
		fits++
		told += d.answered
	}
	again := slices.ContainsFunc(f.rec.copies, func(c *position) bool {
		return !c.void && c.tp == f.tp && c.failed == f.failed && c.due == f.due && f.tp.topic != dlqTopic
	})
	switch {
	case again && m.stopping:
		f.of = nil
	case fits == 0 || best > maxLate:
		l.violate("I5", "%s forwards %s to %v with %d failed attempts, due %d: no delivery of it failed that way (%s)", m.name, f.rec.id(), f.tp, f.failed, f.due, l.tellSent(f.rec))
	case told >= fits:
		l.violate("I7", "%s forwards %s to %v with %d failed attempts again, though it was told that it succeeded", m.name, f.rec.id(), f.tp, f.failed)
	}
	if f.of != nil && !f.of.verdict.at.Before(m.thawed.Add(-callsFirst)) { // else it may have been on its way
		l.checkAsked(m, f.rec, "forwarded")
	}
}

// route is where a failed delivery has to go: the topic, and when it is due.
func (l *ledger) route(d *delivery) (topic string, due time.Time) {
	switch d.verdict.kind {
	case verdictPermanent:
		return dlqTopic, time.Time{}
	case verdictTransient:
	default:
		return "", time.Time{}
	}
	if d.attempt >= l.schedule.MaxAttempts {
		return dlqTopic, time.Time{}
	}
	longest := tiers[len(tiers)-1]
	delay := tiers[min(d.attempt, len(tiers))-1]
	tier := delay
	if wish := d.verdict.wish; wish > 0 {
		delay, tier = min(wish, longest), longest
		for _, t := range slices.Backward(tiers[:]) {
			if t >= delay {
				tier = t
			}
		}
	}
	return tierTopic(tier), d.verdict.at.Add(delay)
}

// maxLate is how many ms a due time may lie behind the failure and the delay: the
// engine learns of a call that outlives its deadline a little later.
const maxLate = 20

// lateness is by how many ms a due time exceeds the one wanted, whose fraction of
// a ms is cut off; < 0 = it is too early.
func lateness(ms int64, want time.Time) int64 {
	if want.IsZero() {
		return ms // there is to be none
	}
	return ms - unixMS(want)
}

func (l *ledger) tellSent(r *record) (s string) {
	for _, d := range r.sent {
		topic, due := l.route(d)
		s += fmt.Sprintf("[%s attempt %d %s → %s %d]", d.member.name, d.attempt, d.step.Act, topic, unixMS(due))
	}
	return s
}

// forwardTook notes forwards that a broker is about to apply, or to refuse.
func (l *ledger) forwardTook(tp topicPartition, rs []kmsgRecord) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.settleLog(tp)
	for i := range rs {
		if tp.topic == outTopic {
			rec, n, _ := l.parseEmission(tp, &rs[i]) // nil: it was told when it was sent
			l.push(tp, &position{rec: rec, emits: n})
			continue
		}
		f, err := l.parse(tp, &rs[i])
		if err != nil {
			l.push(tp, &position{}) // it was told when it was sent
			continue
		}
		p := &position{rec: f.rec, failed: f.failed, due: f.due}
		l.push(tp, p)
		f.rec.copies = append(f.rec.copies, p)
	}
}

// promptly is how long an answer may take to be sure that the member still waits
// for it. One that stood still meanwhile may have found its time over.
const promptly = 5 * time.Second

// forwardsAnswered notes the answer to a request of forwards that the member has
// read.
func (l *ledger) forwardsAnswered(m *member, q request, res *kmsg.ProduceResponse) {
	if time.Since(q.at) > promptly || m.still.since(q.at) > 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range res.Topics {
		for _, p := range t.Partitions {
			for _, f := range q.writes {
				if p.ErrorCode == 0 && f.of != nil && f.tp == (topicPartition{t.Topic, p.Partition}) {
					f.of.answered++
				}
			}
		}
	}
}
