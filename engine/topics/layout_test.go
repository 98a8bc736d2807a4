package topics

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestLayouts(t *testing.T) {
	c := newCluster(t, kfake.SeedTopics(4, "o", "p"))
	layouts := func() map[string]Layout {
		t.Helper()
		got, err := Layouts(t.Context(), c.Client, []string{"o", "p", "absent"})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	first := layouts()
	if len(first) != 2 {
		t.Fatalf("%+v", first)
	}
	for topic, l := range first {
		if l.ID == (ID{}) || l.ID != ID(c.TopicInfo(topic).TopicID) || len(l.Leaders) != 4 {
			t.Errorf("%s: %+v", topic, l)
		}
		for p, leader := range l.Leaders {
			if leader != c.LeaderFor(topic, int32(p)) {
				t.Errorf("%s/%d is led by %d, the layout says %d", topic, p, c.LeaderFor(topic, int32(p)), leader)
			}
		}
	}
	if err := c.DeleteTopic("p"); err != nil {
		t.Fatal(err)
	}
	if got := layouts(); len(got) != 1 || got["o"].ID != first["o"].ID {
		t.Errorf("after a topic was deleted: %+v", got)
	}
	if err := c.CreateTopic("p", 2, nil); err != nil {
		t.Fatal(err)
	}
	if got := layouts(); got["p"].ID == first["p"].ID || len(got["p"].Leaders) != 2 {
		t.Errorf("a topic made anew has its old identity: %+v", got)
	}
}

// A broker that does not know the version closes the connection.
func TestLayoutsOfAnOldBroker(t *testing.T) {
	c := newCluster(t, kfake.SeedTopics(3, "o"))
	var closed atomic.Int32
	c.ControlKey(int16(kmsg.Metadata), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if r.GetVersion() <= 8 {
			return nil, nil, false
		}
		closed.Add(1)
		return nil, errors.New("unsupported version"), true
	})
	got, err := Layouts(t.Context(), c.Client, []string{"o", "absent"})
	if err != nil {
		t.Fatal(err)
	}
	if l := got["o"]; len(got) != 1 || l.ID != (ID{}) || len(l.Leaders) != 3 || l.Leaders[1] != c.LeaderFor("o", 1) {
		t.Errorf("%+v", got)
	}
	if closed.Load() == 0 {
		t.Error("the newer version was not tried")
	}
}

func answerBytes(f func(*kmsg.MetadataResponse)) []byte {
	res := kmsg.NewPtrMetadataResponse()
	res.Version = metadataVersion
	f(res)
	return append([]byte{0}, res.AppendTo(nil)...)
}

// Whatever bytes come, decoding ends, and takes no more memory than they do.
func FuzzLayouts(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, 0, 0, 0, 0, 255, 255, 255, 255, 15})
	f.Add(answerBytes(func(r *kmsg.MetadataResponse) {
		r.Brokers = []kmsg.MetadataResponseBroker{{NodeID: 7, Host: "h", Port: 1, Rack: kmsg.StringPtr("r")}}
		r.Topics = []kmsg.MetadataResponseTopic{{Topic: kmsg.StringPtr("t"), TopicID: [16]byte{1}, Partitions: []kmsg.MetadataResponseTopicPartition{
			{Partition: 1, Leader: 7, Replicas: []int32{7, 8}, ISR: []int32{7}, OfflineReplicas: []int32{8}}, {Partition: 0, Leader: 8},
		}}}
	}))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := (&metadataAnswer{b}).layouts()
		if err != nil {
			return
		}
		for _, l := range got {
			if len(l.Leaders) > len(b) {
				t.Errorf("%d partitions out of %d bytes", len(l.Leaders), len(b))
			}
		}
		ref := kmsg.NewPtrMetadataResponse()
		ref.Version = metadataVersion
		if len(b) == 0 || b[0] != 0 || ref.ReadFrom(b[1:]) != nil {
			return
		}
		want := map[string]kmsg.MetadataResponseTopic{}
		for _, rt := range ref.Topics {
			if rt.ErrorCode == 0 {
				name := ""
				if rt.Topic != nil {
					name = *rt.Topic
				}
				want[name] = rt
			}
		}
		if len(got) != len(want) {
			t.Fatalf("%d topics, another decoder finds %d", len(got), len(want))
		}
		for name, rt := range want {
			if l := got[name]; l.ID != rt.TopicID || len(l.Leaders) != len(rt.Partitions) {
				t.Errorf("%s: %+v, another decoder finds %+v", name, l, rt)
			}
		}
	})
}
