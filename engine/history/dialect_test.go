package history

import (
	"slices"
	"testing"

	"github.com/kconsume/kconsume/plugin"
)

func TestDialects(t *testing.T) {
	own := []plugin.Header{{Key: "a", Value: []byte("1")}, {Key: "kafka_dlt-original-topic", Value: []byte("of an earlier life")}}
	m := Meta{Group: "g", Failed: 3, Origin: Origin{"orders", 2, 1 << 33, 1700000000000}, Class: "permanent", Message: "no such customer"}
	headers := append(m.Headers(own, false), m.Foreign([]Dialect{DialectSpring, DialectKIP1191}, false)...)
	last := map[string]string{}
	for _, h := range headers {
		last[h.Key] = string(h.Value)
	}
	for name, want := range map[string]string{
		"kafka_dlt-original-topic":          "orders",
		"kafka_dlt-original-partition":      "\x00\x00\x00\x02",
		"kafka_dlt-original-offset":         "\x00\x00\x00\x02\x00\x00\x00\x00",
		"kafka_dlt-original-consumer-group": "g",
		"kafka_dlt-exception-message":       "no such customer",
		"__dlq.errors.topic":                "orders",
		"__dlq.errors.partition":            "2",
		"__dlq.errors.offset":               "8589934592",
		"__dlq.errors.delivery.count":       "3",
		"__dlq.errors.message":              "no such customer",
	} {
		if last[name] != want {
			t.Errorf("%s is %q, want %q", name, last[name], want)
		}
	}
	if got := Own(asPlugin(headers)); !slices.EqualFunc(got, own, func(a, b plugin.Header) bool { return a.Key == b.Key && string(a.Value) == string(b.Value) }) {
		t.Errorf("a replay would carry %q", got)
	}
	for _, h := range m.Foreign([]Dialect{DialectSpring, DialectKIP1191}, true) {
		if string(h.Value) == m.Message {
			t.Errorf("%s is there though the record is too large for it", h.Key)
		}
	}
	if n := len(m.Foreign(nil, false)); n != 0 {
		t.Errorf("%d headers that nobody asked for", n)
	}
}
