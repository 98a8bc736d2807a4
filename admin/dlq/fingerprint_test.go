package dlq

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

// What these texts become must never change: fingerprints stand in state topics.
func TestNormaliseIsForEver(t *testing.T) {
	for in, want := range map[string]string{
		"":             "",
		"gateway down": "gateway down",
		"HTTP 503 from 10.0.0.17:8080 after 1.25s":             "HTTP # from # after #s",
		"dial tcp [fe80::1]:9092: connect: connection refused": "dial tcp [fe#::#]:#: connect: connection refused",
		"order 550e8400-e29b-41d4-a716-446655440000 not found": "order # not found",
		"order abcdefab-abcd-abcd-abcd-abcdefabcdef not found": "order # not found",
		"no user \"ada@example.org\" in tenant 'blue'":         "no user \"#\" in tenant '#'",
		"mail to ada@example.org bounced":                      "mail to # bounced",
		"can't parse it, don't ask":                            "can't parse it, don't ask",
		"it isn't 'there'":                                     "it isn't '#'",
		"at 2026-11-29T22:10:11.123Z the clock":                "at #Z the clock",
		"at 2026-11-29 22:10:11 +0100 the clock":               "at # # +# the clock",
		"bad address 0xDEADBEEF, 0x0":                          "bad address #",
		"commit deadbeef and 1a2b3c":                           "commit # and #",
		"pod orders-7f9c5b4d-xk2lp is gone":                    "pod orders-# is gone",
		"utf8 and base64 are words, sha256 too":                "utf# and base# are words, sha# too",
		"attempt_3 of 5":                                       "attempt_# of #",
		"ids [1, 2, 3] and [4]":                                "ids [#] and [#]",
		"json: cannot unmarshal {\"a\":\"b\\\"c\"} into x":     "json: cannot unmarshal {\"#\":\"#\"} into x",
		"an open \"quote":                                      "an open \"quote",
		"line one\n\tline   two\x00":                           "line one line two",
		"Zahlung für Müller fehlt":                             "Zahlung für Müller fehlt",
		"bad \xff\xfe byte":                                    "bad byte",
		"SQLSTATE 23505: duplicate key value violates unique constraint \"orders_pkey\"": "SQLSTATE #: duplicate key value violates unique constraint \"#\"",
		strings.Repeat("é", 300): strings.Repeat("é", 100),
	} {
		if got := Normalise(in); got != want {
			t.Errorf("%q\n got %q\nwant %q", in, got, want)
		}
	}
	if got := Fingerprint("transient", "gateway down"); got != "3d97eb3a443a44bb" {
		t.Errorf("the fingerprint is %s", got)
	}
}

// Ten thousand texts of eight kinds are eight.
func TestNormaliseMakesFewOfMany(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	id := func() string {
		b := make([]byte, 16)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
	}
	texts, prints := map[string]bool{}, map[string]bool{}
	for i := range 10_000 {
		var s string
		switch i % 8 {
		case 0:
			s = fmt.Sprintf("order %s is unknown", id())
		case 1:
			s = fmt.Sprintf("dial tcp 10.%d.%d.%d:%d: i/o timeout", r.IntN(256), r.IntN(256), r.IntN(256), r.IntN(65536))
		case 2:
			s = fmt.Sprintf("amount %d.%02d exceeds the limit %d", r.IntN(1e6), r.IntN(100), r.IntN(1e4))
		case 3:
			s = fmt.Sprintf("no product %q", id()[:r.IntN(30)+1])
		case 4:
			s = fmt.Sprintf("token expired at 2026-%02d-%02dT%02d:%02d:%02dZ", r.IntN(12)+1, r.IntN(28)+1, r.IntN(24), r.IntN(60), r.IntN(60))
		case 5:
			s = fmt.Sprintf("upstream answered %d to request %x", 500+r.IntN(100), r.Uint64()|1<<63)
		case 6:
			s = fmt.Sprintf("user user%d@shop%d.example is locked", r.IntN(1e9), r.IntN(1e5))
		case 7:
			s = fmt.Sprintf("goroutine %d at 0x%x: nil map", r.IntN(1e6), r.Uint64())
		}
		texts[s] = true
		prints[Fingerprint("transient", Normalise(s))] = true
	}
	if len(texts) < 9_000 || len(prints) != 8 {
		t.Errorf("%d texts became %d", len(texts), len(prints))
	}
}

func FuzzNormalise(f *testing.F) {
	f.Add("HTTP 503 from 10.0.0.17:8080 \"x\" 'y")
	f.Add("\xff'\\")
	f.Fuzz(func(t *testing.T, s string) {
		got := Normalise(s)
		if len(got) > maxNormal || !utf8.ValidString(got) {
			t.Fatalf("%q became %q", s, got)
		}
		for i := range len(got) {
			if digit(got[i]) {
				t.Fatalf("%q became %q", s, got)
			}
		}
	})
}

func BenchmarkNormalise(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		Normalise("dial tcp 10.20.30.40:5432: connect: connection refused for order 550e8400-e29b-41d4-a716-446655440000")
	}
}
