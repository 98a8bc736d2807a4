package sim

import (
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// playFaults does all faults of the schedule, each at its time.
func (w *world) playFaults(fs []Fault) {
	for _, f := range fs {
		if !w.until(f.At) {
			return
		}
		w.inject(f)
	}
}

// inject does one fault. One that finds no member to act on does not count.
func (w *world) inject(f Fault) {
	m := w.member(f.Slot)
	switch f.Kind {
	case CutMember, CutLink, LoseAnswer, MuteAnswer, DelayAnswer, DelayRequest, LoseRequest, RepeatReq, FreezeMember, FreezeProc:
		if m == nil {
			return
		}
		w.history.fault(m.name, f.String())
		w.injectWire(f, m)
	default:
		w.history.fault("", f.String())
		w.injectCluster(f)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults[f.Kind]++
}

func (w *world) injectWire(f Fault, m *member) {
	switch f.Kind {
	case CutMember:
		m.wire.cut(-1)
	case CutLink:
		m.wire.cut(f.Broker)
	case FreezeMember:
		m.wire.freeze(f.For)
	case FreezeProc:
		m.still.want(f.For)
		return // it counts as a hit when it stands still
	default:
		m.wire.addRule(f)
		return // it counts as a hit when it has one
	}
	w.hit(f.Kind, 1)
}

func (w *world) injectCluster(f Fault) {
	switch f.Kind {
	case PauseBroker:
		w.pauseBroker(f)
	case RestartBrok:
		w.restartBroker(f)
	case MoveLeader:
		_ = w.cluster.MoveTopicPartition(f.Topic, f.Partition, f.Broker)
	case MoveLeaders:
		for i, topic := range append(stageTopics(), dlqTopic, outTopic) {
			for p := range int32(partitions) {
				_ = w.cluster.MoveTopicPartition(topic, p, f.Leaders[i*partitions+int(p)])
			}
		}
	case MoveCoord:
		w.cluster.RehashCoordinators()
	case Compact:
		w.ledger.compact(topicPartition{mainTopic, f.Partition})
		return // it counts as a hit when an answer shows it
	case MoveStart:
		w.moveStart(f)
		return
	default:
		w.injectError(f)
		return
	}
	w.hit(f.Kind, 1)
}

// injectError has the brokers answer with an error.
func (w *world) injectError(f Fault) {
	kf := kfake.Fault{Keys: []kmsg.Key{f.Key}, Err: f.Err, Count: f.Count}
	switch f.Kind {
	case FailProduce, FailFetch, FailRange, FailMetadata, FailList:
		kf.Topic = f.Topic
	case PartCommit:
		kf.Group, kf.Topic, kf.Partitions = group, f.Topic, []int32{f.Partition}
	default:
		kf.Group = group
	}
	if f.Kind == FailFetch || f.Kind == FailRange || f.Kind == FailProduce && f.Count > 2 {
		kf.Partitions = []int32{f.Partition}
	}
	h := w.cluster.Fault(kf)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.injected = append(w.injected, injection{f.Kind, h})
}

func (w *world) pauseBroker(f Fault) {
	g := newGate()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pauses[f.Broker] != nil {
		return
	}
	w.pauses[f.Broker] = g
	time.AfterFunc(f.For, func() {
		w.mu.Lock()
		delete(w.pauses, f.Broker)
		w.mu.Unlock()
		close(g.opened)
	})
}

func (w *world) restartBroker(f Fault) {
	w.mu.Lock()
	w.refusing[f.Broker] = true
	w.mu.Unlock()
	for slot := range slots {
		if m := w.member(slot); m != nil {
			m.wire.cut(f.Broker)
		}
	}
	time.AfterFunc(f.For, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.refusing, f.Broker)
	})
}

// heal ends all faults: errors that were not answered yet are taken back.
func (w *world) heal() {
	w.history.fault("", "the faults are over")
	for p := range w.partitions(mainTopic) {
		w.ledger.compact(topicPartition{mainTopic, p})
	}
	w.mu.Lock()
	injected := w.injected
	w.injected = nil
	w.mu.Unlock()
	for _, i := range injected {
		i.handle.Remove()
		w.hit(i.kind, i.handle.Hits())
	}
	for slot := range slots {
		if m := w.member(slot); m != nil {
			m.wire.heal()
		}
	}
}
