// Package record decodes Kafka's record batches, format v2.
package record

import "github.com/kconsume/kconsume/plugin"

// Record is one record of a partition. Key, Value and Headers are views of the
// buffer it was decoded from, which stays alive as long as they do.
type Record struct {
	Offset    int64
	Timestamp int64 // unix ms, the broker's where the topic says LogAppendTime; -1 = none
	Key       []byte
	Value     []byte
	Headers   []plugin.Header
}
