package history

import (
	"cmp"
	"encoding/binary"
	"strconv"
	"strings"

	"github.com/kconsume/kconsume/plugin"
	"github.com/segmentio/kafka-go"
)

// Dialect is a set of headers that other tools look for on a dead letter. It is
// written beside ours, for them to read: where ours are we go by those.
type Dialect string

const (
	// DialectSpring is what Spring Kafka's dead letter recoverer writes. Its
	// numbers are big-endian binary.
	DialectSpring Dialect = "spring"
	// DialectKIP1191 is what a broker writes for a share group.
	DialectKIP1191 Dialect = "kip1191"
)

// Prefixes of the names of each dialect's headers.
const (
	springPrefix  = "kafka_dlt-"
	kip1191Prefix = "__dlq.errors."
)

// foreign reports whether a header's name is a dialect's.
func foreign(name string) bool {
	return strings.HasPrefix(name, springPrefix) || strings.HasPrefix(name, kip1191Prefix)
}

// Foreign are a dead letter's headers in other dialects. They go behind ours,
// which is how Own tells them from headers of the record's own with such names.
// bare leaves out what has no small bound.
func (m *Meta) Foreign(dialects []Dialect, bare bool) []kafka.Header {
	var out []kafka.Header
	text := func(name, value string) {
		if value != "" {
			out = append(out, kafka.Header{Key: name, Value: []byte(value)})
		}
	}
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	message := ""
	if !bare {
		message = cut(m.Message, maxHeaderMessage)
	}
	for _, d := range dialects {
		switch d {
		case DialectSpring:
			text("kafka_dlt-original-topic", m.Origin.Topic)
			out = append(out,
				kafka.Header{Key: "kafka_dlt-original-partition", Value: binary.BigEndian.AppendUint32(nil, uint32(m.Origin.Partition))},
				kafka.Header{Key: "kafka_dlt-original-offset", Value: binary.BigEndian.AppendUint64(nil, uint64(m.Origin.Offset))},
				kafka.Header{Key: "kafka_dlt-original-timestamp", Value: binary.BigEndian.AppendUint64(nil, uint64(m.Origin.Timestamp))})
			text("kafka_dlt-original-timestamp-type", "CreateTime")
			text("kafka_dlt-original-consumer-group", m.Group)
			text("kafka_dlt-exception-fqcn", "kconsume."+m.Class)
			text("kafka_dlt-exception-message", message)
		case DialectKIP1191:
			text("__dlq.errors.topic", m.Origin.Topic)
			text("__dlq.errors.partition", number(int64(m.Origin.Partition)))
			text("__dlq.errors.offset", number(m.Origin.Offset))
			text("__dlq.errors.group", m.Group)
			text("__dlq.errors.delivery.count", number(int64(m.Failed)))
			text("__dlq.errors.message", message)
		}
	}
	return out
}

// ReadForeign reads what another tool wrote on a dead letter that has none of our
// headers. Its Group is "" where no dialect names one. What is missing or
// malformed falls back to where the record lies. Of repeated headers the first
// counts for where it came from, and the last for what it failed with: Spring
// appends to those of its retry topics.
func ReadForeign(hs []plugin.Header, at Origin) Meta {
	m := Meta{Origin: at}
	cause := ""
	for i := len(hs) - 1; i >= 0; i-- {
		switch name := hs[i].Key; {
		case name == "kafka_dlt-exception-cause-fqcn":
			cause = cmp.Or(cause, cut(string(hs[i].Value), maxHeaderWord))
		case foreign(name):
			m.readForeign(name, hs[i].Value)
		}
	}
	m.Class = cmp.Or(cause, m.Class) // what is thrown wraps what was the matter
	return m
}

func (m *Meta) readForeign(name string, value []byte) {
	switch name {
	case "kafka_dlt-original-topic", "__dlq.errors.topic":
		m.read(HeaderOrigTopic, string(value))
	case "kafka_dlt-original-partition":
		m.Origin.Partition = int32(binaryNumber(value, 4, int64(m.Origin.Partition)))
	case "kafka_dlt-original-offset":
		m.Origin.Offset = binaryNumber(value, 8, m.Origin.Offset)
	case "kafka_dlt-original-timestamp":
		m.Origin.Timestamp = binaryNumber(value, 8, m.Origin.Timestamp)
	case "__dlq.errors.partition":
		m.read(HeaderOrigPartition, string(value))
	case "__dlq.errors.offset":
		m.read(HeaderOrigOffset, string(value))
	case "__dlq.errors.delivery.count":
		m.read(HeaderAttempts, string(value))
	case "kafka_dlt-original-consumer-group", "__dlq.errors.group":
		m.read(HeaderGroup, string(value))
	case "kafka_dlt-exception-fqcn":
		m.Class = cmp.Or(m.Class, cut(string(value), maxHeaderWord))
	case "kafka_dlt-exception-message", "__dlq.errors.message":
		m.Message = cmp.Or(m.Message, cut(string(value), maxHeaderMessage))
	}
}

// binaryNumber reads a big-endian number of so many bytes that is not negative,
// else it is the fallback.
func binaryNumber(b []byte, size int, fallback int64) int64 {
	if len(b) != size {
		return fallback
	}
	n := int64(0)
	for _, one := range b {
		n = n<<8 | int64(one)
	}
	if n < 0 || (size == 4 && n > 1<<31-1) {
		return fallback
	}
	return n
}

// WithoutForeign are headers without those of dialects, for a copy of a dead
// letter that another tool wrote.
func WithoutForeign(hs []plugin.Header) []plugin.Header {
	var own []plugin.Header
	for _, h := range hs {
		if !foreign(h.Key) {
			own = append(own, h)
		}
	}
	return own
}
