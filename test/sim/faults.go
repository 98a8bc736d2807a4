package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Kind is a kind of fault.
type Kind string

const (
	// On one member's wire.
	CutMember    Kind = "cut member"     // all its connections are closed
	CutLink      Kind = "cut link"       // those to one broker
	LoseAnswer   Kind = "lose answer"    // the broker has acted, the connection ends before its answer
	MuteAnswer   Kind = "mute answer"    // the same, but the connection stays open
	DelayAnswer  Kind = "delay answer"   // of Count answers, by For
	DelayRequest Kind = "delay request"  // of Count requests, by For
	LoseRequest  Kind = "lose request"   // the connection ends before the broker sees it
	RepeatReq    Kind = "repeat request" // it comes to the broker twice, and one of the two answers is lost
	FreezeMember Kind = "freeze member"  // nothing passes for For, then all of it does
	FreezeProc   Kind = "freeze process" // nothing of the member goes on for For
	PauseBroker  Kind = "pause broker"   // nothing passes to and from it for For
	RestartBrok  Kind = "restart broker" // its connections are closed, and refused for For

	// In the cluster.
	MoveLeader  Kind = "move leader"
	MoveLeaders Kind = "move all leaders"
	MoveCoord   Kind = "move coordinator"
	Compact     Kind = "compact"        // a partition of the main topic, as far as it goes
	MoveStart   Kind = "move log start" // of a partition of the main topic, past what is committed
	GrowTopic   Kind = "grow topic"
	MakeAnew    Kind = "make topic anew"

	// Errors in answers, Count of them.
	FailProduce  Kind = "produce error"
	FailFetch    Kind = "fetch error"
	FailRange    Kind = "offset out of range" // said of one that is there
	FailCommit   Kind = "commit error"
	PartCommit   Kind = "partial commit error"
	FailBeat     Kind = "heartbeat error"
	FailJoin     Kind = "join error"
	FailSync     Kind = "sync error"
	FailMetadata Kind = "metadata error"
	FailOffsets  Kind = "offset fetch error"
	FailFind     Kind = "find coordinator error"
	FailList     Kind = "list offsets error"
)

// Fault is one fault. Which fields count depends on its kind.
type Fault struct {
	At        time.Duration
	Kind      Kind
	Slot      int
	Key       kmsg.Key // of requests, on a wire
	Broker    int32
	Topic     string
	Partition int32
	Err       *kerr.Error
	Count     int
	For       time.Duration
	Leaders   []int32 // MoveLeaders: by topic and partition
	Second    bool    // RepeatReq: the second answer comes through
}

// String tells a fault in a history.
func (f Fault) String() string {
	s := fmt.Sprintf("%s: slot %d, broker %d, %s/%d, %s ×%d, %v", f.Kind, f.Slot, f.Broker, f.Topic, f.Partition, f.Key.Name(), f.Count, f.For)
	if f.Err != nil {
		s += ", " + f.Err.Message
	}
	return s
}

// stageTopics are the topics of the line's stages, in order.
func stageTopics() []string {
	ts := []string{mainTopic}
	for _, d := range tiers {
		ts = append(ts, tierTopic(d))
	}
	return append(ts, mainTopic+".replay")
}

func tierTopic(d time.Duration) string { return fmt.Sprintf("%s.retry.%ds", mainTopic, d/time.Second) }

// forwardTopics are those that members write to.
func forwardTopics() []string { return append(stageTopics()[1:len(tiers)+1], dlqTopic) }

// topicErrors are what a broker may answer for a partition.
var topicErrors = map[Kind][]*kerr.Error{
	FailProduce: {
		kerr.NotLeaderForPartition, kerr.RequestTimedOut, kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend,
		kerr.KafkaStorageError, kerr.UnknownTopicOrPartition, kerr.TopicAuthorizationFailed, kerr.UnknownServerError, kerr.MessageTooLarge,
	},
	FailFetch: {
		kerr.NotLeaderForPartition, kerr.KafkaStorageError, kerr.UnknownServerError, kerr.UnknownTopicOrPartition,
		kerr.FencedLeaderEpoch, kerr.TopicAuthorizationFailed, kerr.ReplicaNotAvailable,
	},
	FailRange:    {kerr.OffsetOutOfRange},
	PartCommit:   {kerr.UnknownTopicOrPartition, kerr.RequestTimedOut, kerr.CoordinatorNotAvailable, kerr.TopicAuthorizationFailed},
	FailMetadata: {kerr.LeaderNotAvailable, kerr.ReplicaNotAvailable},
	FailList:     {kerr.NotLeaderForPartition, kerr.UnknownServerError, kerr.LeaderNotAvailable},
}

// groupErrors are what a coordinator may answer.
var groupErrors = map[Kind][]*kerr.Error{
	FailCommit: {
		kerr.RequestTimedOut, kerr.CoordinatorNotAvailable, kerr.NotCoordinator, kerr.CoordinatorLoadInProgress,
		kerr.RebalanceInProgress, kerr.UnknownMemberID, kerr.IllegalGeneration,
	},
	FailBeat:    {kerr.RebalanceInProgress, kerr.UnknownMemberID, kerr.IllegalGeneration, kerr.NotCoordinator, kerr.CoordinatorNotAvailable},
	FailJoin:    {kerr.CoordinatorNotAvailable, kerr.NotCoordinator, kerr.CoordinatorLoadInProgress, kerr.UnknownMemberID, kerr.RebalanceInProgress},
	FailSync:    {kerr.RebalanceInProgress, kerr.NotCoordinator, kerr.UnknownMemberID, kerr.CoordinatorNotAvailable, kerr.IllegalGeneration},
	FailOffsets: {kerr.CoordinatorLoadInProgress, kerr.NotCoordinator, kerr.CoordinatorNotAvailable},
	FailFind:    {kerr.CoordinatorNotAvailable, kerr.CoordinatorLoadInProgress},
}

var keyOf = map[Kind]kmsg.Key{
	FailProduce: kmsg.Produce, FailFetch: kmsg.Fetch, FailRange: kmsg.Fetch, FailCommit: kmsg.OffsetCommit, PartCommit: kmsg.OffsetCommit,
	FailBeat: kmsg.Heartbeat, FailJoin: kmsg.JoinGroup, FailSync: kmsg.SyncGroup, FailMetadata: kmsg.Metadata,
	FailOffsets: kmsg.OffsetFetch, FailFind: kmsg.FindCoordinator, FailList: kmsg.ListOffsets,
}

// wireKinds and the rest are drawn with the weight of their number.
var (
	wireKinds   = []Kind{CutMember, CutLink, LoseAnswer, LoseAnswer, LoseAnswer, MuteAnswer, DelayAnswer, DelayAnswer, DelayRequest, DelayRequest, LoseRequest, RepeatReq, RepeatReq, FreezeMember, FreezeProc, FreezeProc}
	brokerKinds = []Kind{PauseBroker, RestartBrok, MoveLeader, MoveLeader, MoveLeaders, MoveCoord, Compact, Compact, MoveStart}
	errorKinds  = []Kind{FailProduce, FailProduce, FailProduce, FailProduce, FailFetch, FailFetch, FailRange, FailCommit, FailCommit, PartCommit, FailBeat, FailJoin, FailSync, FailMetadata, FailOffsets, FailFind, FailList}
	wireKeys    = []kmsg.Key{kmsg.Produce, kmsg.Produce, kmsg.Produce, kmsg.OffsetCommit, kmsg.OffsetCommit, kmsg.Fetch, kmsg.JoinGroup, kmsg.SyncGroup, kmsg.Heartbeat, kmsg.OffsetFetch, kmsg.Metadata}
	// A network that tries again repeats these. (An answer that a connection brings
	// twice is none of its faults: the client would read the second one as that to
	// its next request, whatever it asks, and believe each count in it.)
	repeatedRequests = []kmsg.Key{kmsg.Produce, kmsg.Produce, kmsg.OffsetCommit}
)

// drawFaults draws faults of all kinds over the time of faults.
func drawFaults(r *rand.Rand) (fs []Fault) {
	kinds := slices.Concat(wireKinds, brokerKinds, errorKinds) // each kind once, at least
	for range 45 + r.IntN(20) {
		switch n := r.IntN(10); {
		case n < 4:
			kinds = append(kinds, pick(r, wireKinds))
		case n < 5:
			kinds = append(kinds, pick(r, brokerKinds))
		default:
			kinds = append(kinds, pick(r, errorKinds))
		}
	}
	for _, k := range kinds {
		fs = append(fs, drawFault(r, k))
	}
	slices.SortStableFunc(fs, func(a, b Fault) int { return int(a.At - b.At) })
	return fs
}

func pick[T any](r *rand.Rand, list []T) T { return list[r.IntN(len(list))] }

// maxCount is how often a fault acts at most.
const maxCount = 5

func drawFault(r *rand.Rand, k Kind) Fault {
	f := Fault{
		At: faultsFrom + between(r, 0, faultsFor), Kind: k, Key: keyOf[k], Slot: r.IntN(slots - 1),
		Broker: int32(r.IntN(brokers)), Topic: pick(r, stageTopics()[:len(tiers)+1]), Partition: int32(r.IntN(partitions)),
		Count: 1 + r.IntN(maxCount), For: between(r, 50*time.Millisecond, 3*time.Second),
	}
	switch k {
	case LoseAnswer, MuteAnswer, LoseRequest, DelayAnswer, DelayRequest:
		f.Key = pick(r, wireKeys)
		if k != DelayAnswer && k != DelayRequest {
			f.Count = 1
		}
	case RepeatReq:
		f.Key, f.Second = pick(r, repeatedRequests), r.IntN(2) == 0
	case FreezeMember: // some of them past the session
		f.For = between(r, time.Second, 12*time.Second)
	case FreezeProc: // half of them for so long that it asks the group, which has not gone on yet
		f.For = between(r, time.Second, 12*time.Second)
		if r.IntN(2) == 0 {
			f.For = between(r, stoodLong, sessionTimeout)
		}
	case FailProduce:
		f.Topic = pick(r, append(forwardTopics(), outTopic))
	case MoveLeaders:
		for range (len(stageTopics()) + 2) * partitions {
			f.Leaders = append(f.Leaders, int32(r.IntN(brokers)))
		}
	}
	if errs := topicErrors[k]; errs != nil {
		f.Err = pick(r, errs)
	}
	if errs := groupErrors[k]; errs != nil {
		f.Err = pick(r, errs)
		f.Count = 1 + r.IntN(3)
	}
	return f
}
