// Package export is the text form of records: a line of JSON each, of which
// every byte of the record can be made again. dlq export writes it, plugin test
// reads it, and people write it by hand:
//
//	{"topic":"orders","partition":0,"offset":17,"timestamp":1767225600000,
//	 "key":"anna","value":"{\"total\":5}","headers":[{"key":"trace","value":null}]}
//
// on one line. Everything but the braces may be missing. key, value and the two
// parts of a header are text, or null, or {"base64":"…"} where the bytes are not
// UTF-8; null and "" are different things, and a part that is missing is null.
// timestamp is in unix milliseconds. "attempt" is the number of the delivery
// that plugin test begins with, 1 by default. "about" is for people and programs
// that look at the export: any JSON, passed over when the record is read.
package export

import (
	"encoding/json"

	"github.com/kconsume/kconsume/plugin"
)

// Record is one record as it lies in a topic.
type Record struct {
	Topic     string // "" = not said
	Partition int32
	Offset    int64 // -1 = not said
	Timestamp int64 // unix ms, -1 = none
	// Key, Value and the headers' values keep null (nil) and empty apart.
	Key, Value []byte
	Headers    []plugin.Header // in order, repeated names too
	Attempt    int             // of the delivery, 1 = the first; 0 = not said
	About      json.RawMessage // JSON beside the record, nil = none
}
