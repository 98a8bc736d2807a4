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

func TestReadForeign(t *testing.T) {
	at := Origin{"orders-dlt", 1, 7, 1700000000000}
	h := func(name, value string) plugin.Header { return plugin.Header{Key: name, Value: []byte(value)} }
	for _, c := range []struct {
		name string
		hs   []plugin.Header
		want Meta
	}{
		{"nothing", []plugin.Header{h("a", "b")}, Meta{Origin: at}},
		{"spring", []plugin.Header{
			h("kafka_dlt-original-topic", "orders"), h("kafka_dlt-original-partition", "\x00\x00\x00\x02"), h("kafka_dlt-original-offset", "\x00\x00\x00\x00\x00\x00\x01\x00"),
			h("kafka_dlt-original-timestamp", "\x00\x00\x01\x8b\xcf\xe5\x68\x00"), h("kafka_dlt-original-consumer-group", "g"),
			h("kafka_dlt-exception-cause-fqcn", "java.io.IOException"), h("kafka_dlt-exception-fqcn", "Wrapper"), h("kafka_dlt-exception-message", "down"),
		}, Meta{Group: "g", Origin: Origin{"orders", 2, 256, 1700000000000}, Class: "java.io.IOException", Message: "down"}},
		{"spring, through its retry topics", []plugin.Header{
			h("kafka_dlt-original-topic", "orders"), h("kafka_dlt-exception-fqcn", "First"), h("kafka_dlt-original-topic", "orders-retry-0"), h("kafka_dlt-exception-fqcn", "Last"),
		}, Meta{Origin: Origin{"orders", 1, 7, 1700000000000}, Class: "Last"}},
		{"spring, malformed", []plugin.Header{
			h("kafka_dlt-original-topic", ""), h("kafka_dlt-original-partition", "2"), h("kafka_dlt-original-offset", "\xff\xff\xff\xff\xff\xff\xff\xff"), h("kafka_dlt-original-timestamp", ""),
		}, Meta{Origin: at}},
		{"a share group's", []plugin.Header{
			h("__dlq.errors.topic", "orders"), h("__dlq.errors.partition", "3"), h("__dlq.errors.offset", "9"), h("__dlq.errors.group", "s"),
			h("__dlq.errors.delivery.count", "5"), h("__dlq.errors.message", "rejected"),
		}, Meta{Group: "s", Failed: 5, Origin: Origin{"orders", 3, 9, 1700000000000}, Message: "rejected"}},
		{"a share group's, malformed", []plugin.Header{
			h("__dlq.errors.partition", "-3"), h("__dlq.errors.offset", "1e3"), h("__dlq.errors.delivery.count", "99999999999999999999"),
		}, Meta{Origin: at}},
	} {
		if got := ReadForeign(c.hs, at); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
	all := []plugin.Header{h("kafka_dlt-original-topic", "orders"), h("a", "1"), h("__dlq.errors.group", "s"), h("a", "2")}
	if got := WithoutForeign(all); len(got) != 2 || string(got[0].Value) != "1" || string(got[1].Value) != "2" {
		t.Errorf("without them: %q", got)
	}
}
