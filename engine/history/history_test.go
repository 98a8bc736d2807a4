package history

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/kconsume/kconsume/plugin"
	"github.com/segmentio/kafka-go"
)

const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func asPlugin(hs []kafka.Header) []plugin.Header {
	var out []plugin.Header
	for _, h := range hs {
		out = append(out, plugin.Header{Key: h.Key, Value: h.Value})
	}
	return out
}

func TestForwardHeadersReadBack(t *testing.T) {
	own := []plugin.Header{{Key: "a", Value: []byte("1")}, {Key: "a", Value: nil}, {Key: "x\xff\xfe", Value: []byte{}}, {Key: "", Value: []byte{2}}}
	m := Meta{
		Group: "g", Failed: 2, Due: 1700000005000, Origin: Origin{"t", 3, 42, 1699999999999},
		FirstFailure: 1700000000000, Class: "transient", Code: "503", Message: "gateway down",
		ErrorTime: 1700000000001, Handler: "orders@1", ReplayID: "r1", ReplayCount: 1, Trace: traceparent,
	}
	sent := asPlugin(m.Headers(own, false))
	for i, h := range own {
		if sent[i].Key != h.Key || !bytes.Equal(sent[i].Value, h.Value) || (sent[i].Value == nil) != (h.Value == nil) {
			t.Errorf("own header %d: got %q=%v, want %q=%v", i, sent[i].Key, sent[i].Value, h.Key, h.Value)
		}
	}
	got := Read(sent, Origin{"other", 9, 9, 9}, 5)
	m.RecordID = "t/3/42@1699999999999"
	if got != m {
		t.Errorf("read back %+v\nwant %+v", got, m)
	}
	again := asPlugin(got.Headers(Own(sent), false))
	if len(again) != len(sent) {
		t.Errorf("a second forward has %d headers, the first %d: ours must be replaced, not added", len(again), len(sent))
	}
}

// A record that is too large with them goes without diagnostics.
func TestBareHeaders(t *testing.T) {
	m := Meta{Code: "c", Message: "m", Trace: traceparent, Class: "transient"}
	for _, h := range m.Headers(nil, true) {
		switch h.Key {
		case HeaderErrorCode, HeaderErrorMessage, HeaderTraceparent:
			t.Errorf("it has %s", h.Key)
		}
	}
}

func TestOwnHeadersKeepsOrderAndIdentity(t *testing.T) {
	plain := []plugin.Header{{Key: "a"}, {Key: "X-Other"}}
	if got := Own(plain); &got[0] != &plain[0] {
		t.Error("headers without ours were copied")
	}
	mixed := []plugin.Header{{Key: "a"}, {Key: HeaderDue}, {Key: "b"}, {Key: HeaderGroup}, {Key: "a"}}
	var names []string
	for _, h := range Own(mixed) {
		names = append(names, h.Key)
	}
	if got := strings.Join(names, ","); got != "a,b,a" {
		t.Errorf("got %s", got)
	}
}

// What others wrote into our headers is ignored or clamped, never believed.
func TestReadMetaForged(t *testing.T) {
	at := Origin{"t.retry.5s", 1, 7, 1000}
	for _, c := range []struct {
		name, header, value string
		ok                  func(Meta) bool
	}{
		{"negative attempts", HeaderAttempts, "-1", func(m Meta) bool { return m.Failed == 0 }},
		{"attempts of 2^63", HeaderAttempts, "9223372036854775808", func(m Meta) bool { return m.Failed == 0 }},
		{"attempts over the limit", HeaderAttempts, "700", func(m Meta) bool { return m.Failed == 2 }},
		{"attempts that are no number", HeaderAttempts, "NaN", func(m Meta) bool { return m.Failed == 0 }},
		{"due that is no number", HeaderDue, "soon", func(m Meta) bool { return m.Due == 0 }},
		{"offset that is no number", HeaderOrigOffset, "x", func(m Meta) bool { return m.Origin.Offset == 7 }},
		{"partition beyond int32", HeaderOrigPartition, "4294967296", func(m Meta) bool { return m.Origin.Partition == 1 }},
		{"origin topic of 300 characters", HeaderOrigTopic, strings.Repeat("a", 300), func(m Meta) bool { return m.Origin.Topic == "t.retry.5s" }},
		{"record id of 1 MiB", HeaderRecordID, strings.Repeat("a", 1<<20), func(m Meta) bool { return m.RecordID == "" }},
		{"trace", HeaderTraceparent, traceparent, func(m Meta) bool { return m.Trace == traceparent }},
		{"trace of 100 KB", HeaderTraceparent, strings.Repeat("0", 100_000), func(m Meta) bool { return m.Trace == "" }},
		{"trace that is none", HeaderTraceparent, strings.Repeat("0", 55), func(m Meta) bool { return m.Trace == "" }},
		{"trace of a later version", HeaderTraceparent, "cc" + traceparent[2:] + "-x", func(m Meta) bool { return m.Trace == "" }},
		{"negative timestamp is ordinary", HeaderOrigTimestamp, "-1", func(m Meta) bool { return m.Origin.Timestamp == -1 }},
	} {
		m := Read([]plugin.Header{{Key: c.header, Value: []byte(c.value)}}, at, 3)
		if !c.ok(m) {
			t.Errorf("%s: got %+v", c.name, m)
		}
	}
}

func FuzzReadMeta(f *testing.F) {
	f.Add(HeaderAttempts, []byte("1"), HeaderDue, []byte("x"))
	f.Add("\xff", []byte(nil), HeaderErrorMessage, bytes.Repeat([]byte{0xc3}, 4000))
	f.Fuzz(func(t *testing.T, k1 string, v1 []byte, k2 string, v2 []byte) {
		hs := []plugin.Header{{Key: k1, Value: v1}, {Key: k2, Value: v2}}
		m := Read(hs, Origin{"t", 0, 0, 0}, 3)
		if m.Failed < 0 || m.Failed > 2 {
			t.Fatalf("failed %d is out of bounds", m.Failed)
		}
		size := 0
		for _, h := range m.Headers(Own(hs), false) {
			if Ours(h.Key) {
				size += len(h.Key) + len(h.Value)
				if h.Key != HeaderGroup && h.Key != HeaderOrigTopic && h.Key != HeaderRecordID && h.Key != HeaderReplayID && !utf8.Valid(h.Value) {
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

func BenchmarkForwardHeaders(b *testing.B) {
	m := Meta{Group: "g", Failed: 2, Due: 1700000005000, Origin: Origin{"orders", 3, 42, 1699999999999}, Class: "transient", Message: "gateway down", Handler: "orders@1"}
	own := []plugin.Header{{Key: "traceparent", Value: []byte(traceparent)}}
	b.ReportAllocs()
	for b.Loop() {
		m.Headers(own, false)
	}
}

func BenchmarkReadMeta(b *testing.B) {
	m := Meta{Group: "g", Failed: 2, Due: 1700000005000, Origin: Origin{"orders", 3, 42, 1699999999999}, Class: "transient", Message: "gateway down", Handler: "orders@1"}
	hs := asPlugin(m.Headers(nil, false))
	b.ReportAllocs()
	for b.Loop() {
		Read(hs, Origin{}, 3)
	}
}
