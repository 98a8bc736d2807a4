package backlog

import (
	"maps"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Whatever a member was given, reading it ends, and finds what another decoder does.
func FuzzOwned(f *testing.F) {
	a := kmsg.NewConsumerMemberAssignment()
	a.Topics = []kmsg.ConsumerMemberAssignmentTopic{{Topic: "t", Partitions: []int32{0, 7}}, {Topic: "u"}}
	a.UserData = []byte("more")
	f.Add(a.AppendTo(nil))
	f.Add([]byte{0, 1, 255, 255, 255, 255})
	f.Add([]byte{0, 1, 0, 0, 0, 1, 255, 255, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		got := map[Place]bool{}
		if owned(b, got) != nil {
			return
		}
		var ref kmsg.ConsumerMemberAssignment
		if len(b) == 0 || ref.ReadFrom(b) != nil {
			return
		}
		want := map[Place]bool{}
		for _, topic := range ref.Topics {
			for _, p := range topic.Partitions {
				want[Place{topic.Topic, int(p)}] = true
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("got %v, another decoder finds %v", got, want)
		}
	})
}
