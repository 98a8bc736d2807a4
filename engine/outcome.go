package engine

import (
	"encoding/json"
	"time"

	"github.com/kconsume/kconsume/engine/history"
	"github.com/segmentio/kafka-go"
)

// outcome is a replay's outcome on its way. Its record is settled only once it has arrived, so
// that whoever replayed it learns how that ended, whatever happens to us.
type outcome struct {
	passage
	p    *partition
	slot uint64
	end  history.Outcome
}

// conclude settles a record that needs nothing more, a replayed one by way of
// its outcome.
func (l *loop) conclude(p *partition, slot uint64, end history.Outcome, now time.Time) {
	it := p.track.at(slot)
	if it.meta == nil {
		l.settle(p, slot)
		return
	}
	if _, replayed := history.ParseReplayID(it.meta.ReplayID); !replayed {
		l.settle(p, slot)
		return
	}
	it.state = itemForwarding
	end.Version, end.ReplayID, end.At = history.OutcomeVersion, it.meta.ReplayID, now.UnixMilli()
	end.Attempts = it.meta.Failed + 1
	l.ship(&outcome{p: p, slot: slot, end: end})
}

func (x *outcome) source() *partition { return x.p }
func (x *outcome) wanted() bool       { return !x.p.gone }
func (x *outcome) slim() bool         { return false }

// target is the state topic's first partition: it has one.
func (x *outcome) target(*loop) sinkID {
	return sinkID{topicPartition: topicPartition{x.p.lane.line.State(), 0}}
}

func (x *outcome) message(int32) kafka.Message {
	value, err := json.Marshal(&x.end)
	if err != nil {
		panic(err) // it holds nothing that JSON has not
	}
	return kafka.Message{Key: []byte(history.OutcomeKey + x.end.ReplayID), Value: value}
}

func (x *outcome) arrived(l *loop, _ time.Time) {
	if x.p.gone || !x.p.track.open(x.slot) {
		return
	}
	l.unpark(x)
	l.settle(x.p, x.slot)
}

// failed: without its outcome the record is not settled.
func (x *outcome) failed(*loop, writeFailure, time.Time) bool { return true }

func (x *outcome) oversize(l *loop, s *sink, now time.Time) { l.park(x, s, now) }
