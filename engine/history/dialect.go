package history

import (
	"encoding/binary"
	"strconv"
	"strings"

	"github.com/segmentio/kafka-go"
)

// Dialect is a set of headers that other tools look for on a dead letter. It is
// written beside ours, for them to read: we go by our own.
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
