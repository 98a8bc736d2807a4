package daemon_test

import (
	"bytes"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/kconsume/kconsume/plugin"
	"github.com/kconsume/kconsume/test/kcat"
)

// What a dead letter looks like to another client: key, value and its own
// headers byte for byte, and ours behind them.
func TestDeadLetterBytes(t *testing.T) {
	topic, group := "bytes", "bytes-group"
	createTopic(t, topic, 1)
	own := []plugin.Header{{Key: "a", Value: []byte("1")}, {Key: "a", Value: nil}, {Key: "a", Value: []byte{}}, {Key: "x\xff\xfe", Value: []byte{1, 255}}}
	sent := []kcat.Record{
		{Key: nil, Value: nil, Headers: own}, // a tombstone without a key
		{Key: []byte("k"), Value: nil},       // a tombstone
		{Key: []byte("k"), Value: []byte{}},  // an empty value
		{Key: []byte{}, Value: []byte("perm")},
		{Key: []byte{0xff, 0xfe}, Value: []byte("fail 9"), Headers: own[:1]},
		{Key: nil, Value: []byte("panic")},
	}
	kcat.Produce(t, broker.Cluster(t).Bootstrap(), topic, 0, sent)
	d := start(t, topic, group, filepath.Join(t.TempDir(), "probe.log"), "--retry", "200ms,400ms")
	stages := []string{topic, topic + ".retry.200ms", topic + ".retry.400ms"}
	until(t, "all are in the DLQ", func() bool {
		return lag(t, group, []string{topic + ".dlq"}, 1) == int64(len(sent))
	})
	until(t, "the lag is zero", func() bool { return lag(t, group, stages, 1) == 0 })
	d.stop()

	source := kcat.Consume(t, broker.Cluster(t).Bootstrap(), topic)
	dead := map[string]kcat.Record{}
	for _, r := range kcat.Consume(t, broker.Cluster(t).Bootstrap(), topic+".dlq") {
		dead[header(r, "X-Original-Offset")] = r
	}
	classes := []string{"poison", "poison", "poison", "permanent", "transient", "panic"}
	for i, want := range sent {
		got, ok := dead[strconv.Itoa(i)]
		if !ok {
			t.Errorf("record %d is not in the DLQ", i)
			continue
		}
		t.Logf("record %d: key %q value %q headers %q", i, got.Key, got.Value, got.Headers)
		if !same(got.Key, want.Key) || !same(got.Value, want.Value) {
			t.Errorf("record %d: key %#v value %#v, want %#v and %#v", i, got.Key, got.Value, want.Key, want.Value)
		}
		if len(got.Headers) < len(want.Headers) {
			t.Errorf("record %d lost headers: %q", i, got.Headers)
			continue
		}
		for j, h := range want.Headers {
			if g := got.Headers[j]; g.Key != h.Key || !same(g.Value, h.Value) {
				t.Errorf("record %d, header %d: %q=%#v, want %q=%#v", i, j, g.Key, g.Value, h.Key, h.Value)
			}
		}
		attempts := "1"
		if classes[i] == "transient" {
			attempts = "3"
		}
		for name, value := range map[string]string{
			"X-Retry-Attempts": attempts, "X-Retry-Group": group, "X-Retry-Due": "",
			"X-Original-Topic": topic, "X-Original-Partition": "0", "X-Original-Offset": strconv.Itoa(i),
			"X-Original-Timestamp": ms(source[i].Time), "X-Error-Class": classes[i], "X-Handler": "probe@1",
			"X-Record-Id": topic + "/0/" + strconv.Itoa(i) + "@" + ms(source[i].Time),
		} {
			if g := header(got, name); g != value {
				t.Errorf("record %d: %s is %q, want %q", i, name, g, value)
			}
		}
		for _, name := range []string{"X-First-Failure-Time", "X-Error-Time", "X-Error-Message"} {
			if header(got, name) == "" {
				t.Errorf("record %d has no %s", i, name)
			}
		}
	}
}

func ms(t time.Time) string { return strconv.FormatInt(t.UnixMilli(), 10) }

// same compares bytes and tells null from empty.
func same(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }

func header(r kcat.Record, name string) string {
	for _, h := range r.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}
