package state

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
)

var errPacked = errors.New("the list of records is damaged: plan anew")

// Pack makes a list of ids small: each takes about ten bytes. The list is in
// the order of partition and offset.
func Pack(ids []ID) []byte {
	var b []byte
	var last ID
	for _, id := range ids {
		b = binary.AppendVarint(b, int64(id.Partition)-int64(last.Partition))
		if id.Partition != last.Partition {
			last.Offset = 0
		}
		b = binary.AppendVarint(b, id.Offset-last.Offset)
		raw, _ := hex.DecodeString(id.Identity)
		b = append(b, byte(len(raw)))
		b = append(b, raw...)
		last = id
	}
	return b
}

// Unpack reads what Pack made.
func Unpack(b []byte) ([]ID, error) {
	var ids []ID
	var last ID
	for len(b) > 0 {
		p, n := binary.Varint(b)
		if n <= 0 {
			return nil, errPacked
		}
		b = b[n:]
		if p != 0 {
			last.Partition, last.Offset = last.Partition+int32(p), 0
		}
		o, n := binary.Varint(b)
		if n <= 0 || len(b) == n || len(b)-n-1 < int(b[n]) {
			return nil, errPacked
		}
		size := int(b[n])
		last.Offset += o
		last.Identity = hex.EncodeToString(b[n+1 : n+1+size])
		b = b[n+1+size:]
		ids = append(ids, last)
	}
	return ids, nil
}
