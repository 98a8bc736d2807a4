package engine

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/kconsume/kconsume/engine/record"
	"github.com/kconsume/kconsume/engine/topology"
	"github.com/kconsume/kconsume/plugin"
	"github.com/segmentio/kafka-go"
)

func asPlugin(hs []kafka.Header) []plugin.Header {
	var out []plugin.Header
	for _, h := range hs {
		out = append(out, plugin.Header{Key: h.Key, Value: h.Value})
	}
	return out
}

func TestForwardHeadersReadBack(t *testing.T) {
	own := []plugin.Header{{Key: "a", Value: []byte("1")}, {Key: "a", Value: nil}, {Key: "x\xff\xfe", Value: []byte{}}, {Key: "", Value: []byte{2}}}
	m := meta{
		group: "g", failed: 2, due: 1700000005000, origin: origin{"t", 3, 42, 1699999999999},
		firstFailure: 1700000000000, class: "transient", code: "503", message: "gateway down",
		errorTime: 1700000000001, handler: "orders@1", replayID: "r1", replayCount: 1,
	}
	sent := asPlugin(forwardHeaders(own, &m, false))
	for i, h := range own {
		if sent[i].Key != h.Key || !bytes.Equal(sent[i].Value, h.Value) || (sent[i].Value == nil) != (h.Value == nil) {
			t.Errorf("own header %d: got %q=%v, want %q=%v", i, sent[i].Key, sent[i].Value, h.Key, h.Value)
		}
	}
	got := readMeta(sent, origin{"other", 9, 9, 9}, 5)
	m.recordID = "t/3/42@1699999999999"
	if got != m {
		t.Errorf("read back %+v\nwant %+v", got, m)
	}
	again := asPlugin(forwardHeaders(ownHeaders(sent), &got, false))
	if len(again) != len(sent) {
		t.Errorf("a second forward has %d headers, the first %d: ours must be replaced, not added", len(again), len(sent))
	}
}

func TestOwnHeadersKeepsOrderAndIdentity(t *testing.T) {
	plain := []plugin.Header{{Key: "a"}, {Key: "X-Other"}}
	if got := ownHeaders(plain); &got[0] != &plain[0] {
		t.Error("headers without ours were copied")
	}
	mixed := []plugin.Header{{Key: "a"}, {Key: headerDue}, {Key: "b"}, {Key: headerGroup}, {Key: "a"}}
	var names []string
	for _, h := range ownHeaders(mixed) {
		names = append(names, h.Key)
	}
	if got := strings.Join(names, ","); got != "a,b,a" {
		t.Errorf("got %s", got)
	}
}

// What others wrote into our headers is ignored or clamped, never believed.
func TestReadMetaForged(t *testing.T) {
	at := origin{"t.retry.5s", 1, 7, 1000}
	for _, c := range []struct {
		name, header, value string
		ok                  func(meta) bool
	}{
		{"negative attempts", headerAttempts, "-1", func(m meta) bool { return m.failed == 0 }},
		{"attempts of 2^63", headerAttempts, "9223372036854775808", func(m meta) bool { return m.failed == 0 }},
		{"attempts over the limit", headerAttempts, "700", func(m meta) bool { return m.failed == 2 }},
		{"attempts that are no number", headerAttempts, "NaN", func(m meta) bool { return m.failed == 0 }},
		{"due that is no number", headerDue, "soon", func(m meta) bool { return m.due == 0 }},
		{"offset that is no number", headerOrigOffset, "x", func(m meta) bool { return m.origin.offset == 7 }},
		{"partition beyond int32", headerOrigPartition, "4294967296", func(m meta) bool { return m.origin.partition == 1 }},
		{"origin topic of 300 characters", headerOrigTopic, strings.Repeat("a", 300), func(m meta) bool { return m.origin.topic == "t.retry.5s" }},
		{"record id of 1 MiB", headerRecordID, strings.Repeat("a", 1<<20), func(m meta) bool { return m.recordID == "" }},
		{"negative timestamp is ordinary", headerOrigTimestamp, "-1", func(m meta) bool { return m.origin.timestamp == -1 }},
	} {
		m := readMeta([]plugin.Header{{Key: c.header, Value: []byte(c.value)}}, at, 3)
		if !c.ok(m) {
			t.Errorf("%s: got %+v", c.name, m)
		}
	}
}

func FuzzReadMeta(f *testing.F) {
	f.Add(headerAttempts, []byte("1"), headerDue, []byte("x"))
	f.Add("\xff", []byte(nil), headerErrorMessage, bytes.Repeat([]byte{0xc3}, 4000))
	f.Fuzz(func(t *testing.T, k1 string, v1 []byte, k2 string, v2 []byte) {
		hs := []plugin.Header{{Key: k1, Value: v1}, {Key: k2, Value: v2}}
		m := readMeta(hs, origin{"t", 0, 0, 0}, 3)
		if m.failed < 0 || m.failed > 2 {
			t.Fatalf("failed %d is out of bounds", m.failed)
		}
		size := 0
		for _, h := range forwardHeaders(ownHeaders(hs), &m, false) {
			if ours(h.Key) {
				size += len(h.Key) + len(h.Value)
				if h.Key != headerGroup && h.Key != headerOrigTopic && h.Key != headerRecordID && h.Key != headerReplayID && !utf8.Valid(h.Value) {
					t.Fatalf("%s is not UTF-8: %q", h.Key, h.Value)
				}
			}
		}
		if size > 8<<10+len(v1)+len(v2) {
			t.Fatalf("our headers take %d bytes", size)
		}
	})
}

func TestCut(t *testing.T) {
	for _, c := range []struct {
		in   string
		n    int
		want string
	}{
		{"abc", 5, "abc"}, {"abc", 2, "ab"}, {"aé", 2, "a"}, {"é", 1, ""}, {"bad \xff\xfe", 20, "bad \uFFFD"}, {"\xff", 1, ""},
	} {
		if got := cut(c.in, c.n); got != c.want {
			t.Errorf("cut(%q, %d) = %q, want %q", c.in, c.n, got, c.want)
		}
	}
}

func TestAdmit(t *testing.T) {
	main := topology.Stage{Name: stageMain, Topic: "t"}
	tier := tiers(5 * time.Second)[0]
	replay := topology.Stage{Name: stageReplay, Topic: "t.replay"}
	now := int64(1_000_000)
	hs := func(kv ...string) []plugin.Header {
		var out []plugin.Header
		for i := 0; i < len(kv); i += 2 {
			out = append(out, plugin.Header{Key: kv[i], Value: []byte(kv[i+1])})
		}
		return out
	}
	for _, c := range []struct {
		name    string
		stage   topology.Stage
		headers []plugin.Header
		want    admission // meta is checked apart
		attempt int
	}{
		{"main", main, nil, admission{}, 1},
		{"main with forged headers", main, hs(headerAttempts, "2", headerGroup, "g"), admission{}, 1},
		{"main, a replay to the source", main, hs(headerGroup, "g", headerOrigTopic, "t", headerReplayID, "r"), admission{}, 1},
		{"main, another group's replay", main, hs(headerGroup, "h", headerOrigTopic, "t", headerReplayID, "r", headerAttempts, "2"), admission{}, 1},
		{"tier, ours", tier, hs(headerGroup, "g", headerAttempts, "1", headerDue, "1004000"), admission{due: 1_004_000}, 2},
		{"tier, due long past", tier, hs(headerGroup, "g", headerAttempts, "1", headerDue, "7"), admission{due: 7}, 2},
		{"tier, due in the year 3000", tier, hs(headerGroup, "g", headerAttempts, "1", headerDue, "32503680000000"), admission{due: 1_005_000}, 2},
		{"tier, no due", tier, hs(headerGroup, "g", headerAttempts, "1"), admission{due: 1_005_000}, 2},
		{"tier, another group's", tier, hs(headerGroup, "h", headerAttempts, "1"), admission{skip: true, group: "h"}, 1},
		{"tier, nobody's", tier, hs("a", "b"), admission{foreign: true}, 1},
		{"tier, no headers at all", tier, nil, admission{foreign: true}, 1},
		{"replay", replay, hs(headerGroup, "g", headerAttempts, "0", headerDue, "99999999"), admission{}, 1},
	} {
		rec := record.Record{Offset: 5, Timestamp: now, Headers: c.headers}
		got := admit(c.stage, "t", "g", &rec, 0, 3, now)
		attempt := 1
		if got.meta != nil {
			attempt = got.meta.failed + 1
			got.meta = nil
		}
		if got != c.want || attempt != c.attempt {
			t.Errorf("%s: got %+v attempt %d, want %+v attempt %d", c.name, got, attempt, c.want, c.attempt)
		}
	}
}

func BenchmarkForwardHeaders(b *testing.B) {
	m := meta{group: "g", failed: 2, due: 1700000005000, origin: origin{"orders", 3, 42, 1699999999999}, class: "transient", message: "gateway down", handler: "orders@1"}
	own := []plugin.Header{{Key: "traceparent", Value: []byte("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")}}
	b.ReportAllocs()
	for b.Loop() {
		forwardHeaders(own, &m, false)
	}
}

func BenchmarkReadMeta(b *testing.B) {
	m := meta{group: "g", failed: 2, due: 1700000005000, origin: origin{"orders", 3, 42, 1699999999999}, class: "transient", message: "gateway down", handler: "orders@1"}
	hs := asPlugin(forwardHeaders(nil, &m, false))
	b.ReportAllocs()
	for b.Loop() {
		readMeta(hs, origin{}, 3)
	}
}
