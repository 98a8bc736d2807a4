package conformance

import "google.golang.org/protobuf/encoding/protowire"

// A host's frames, field by field.

func appendStart(b []byte, concurrency uint64) []byte {
	start := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), concurrency)
	return protowire.AppendBytes(protowire.AppendTag(b, 3, protowire.BytesType), start)
}

func appendDrain(b []byte) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.VarintType), 1)
}

func appendCancel(b []byte, handle uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, 4, protowire.VarintType), handle)
}

// appendRecord appends a record with a command.
func appendRecord(b []byte, handle uint64, value, command []byte) []byte {
	return appendAttempt(b, handle, value, command, 1)
}

func appendAttempt(b []byte, handle uint64, value, command []byte, attempt uint64) []byte {
	return appendFields(b, handle, value, "do", command, attempt)
}

// appendHeader appends a record that the handler has nothing to do for.
func appendHeader(b []byte, handle uint64, value []byte, name string, content []byte) []byte {
	return appendFields(b, handle, value, name, content, 1)
}

func appendFields(b []byte, handle uint64, value []byte, name string, content []byte, attempt uint64) []byte {
	r := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), handle)
	r = protowire.AppendBytes(protowire.AppendTag(r, 2, protowire.BytesType), []byte("orders.v1/3/123456@1700000000000"))
	r = protowire.AppendBytes(protowire.AppendTag(r, 3, protowire.BytesType), []byte("orders.v1"))
	r = protowire.AppendVarint(protowire.AppendTag(r, 4, protowire.VarintType), 3)
	r = protowire.AppendVarint(protowire.AppendTag(r, 5, protowire.VarintType), handle)
	r = protowire.AppendVarint(protowire.AppendTag(r, 6, protowire.VarintType), 1_700_000_000_000)
	r = protowire.AppendBytes(protowire.AppendTag(r, 7, protowire.BytesType), []byte("customer-0123456"))
	r = protowire.AppendBytes(protowire.AppendTag(r, 8, protowire.BytesType), value)
	h := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), []byte(name))
	h = protowire.AppendBytes(protowire.AppendTag(h, 2, protowire.BytesType), content)
	r = protowire.AppendBytes(protowire.AppendTag(r, 9, protowire.BytesType), h)
	r = protowire.AppendVarint(protowire.AppendTag(r, 10, protowire.VarintType), attempt)
	r = protowire.AppendVarint(protowire.AppendTag(r, 11, protowire.VarintType), 3)
	r = protowire.AppendBytes(protowire.AppendTag(r, 12, protowire.BytesType), []byte("main"))
	r = protowire.AppendVarint(protowire.AppendTag(r, 13, protowire.VarintType), 30_000)
	return protowire.AppendBytes(protowire.AppendTag(b, 1, protowire.BytesType), r)
}
