package wire

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto" // registers the codec that Codec falls back to
	"google.golang.org/grpc/mem"
)

// Codec is a gRPC codec for frames and beats, and protobuf's own for all else,
// such as go-plugin's services on the same connection. It is for
// grpc.ForceCodecV2 and grpc.ForceServerCodecV2; see ServerOptions, CallOptions.
type Codec struct{}

// Name is protobuf's, because the bytes are.
func (Codec) Name() string { return proto.Name }

// Marshal encodes v. See HostFrame.Encode for which bytes it does not copy.
func (Codec) Marshal(v any) (mem.BufferSlice, error) {
	switch f := v.(type) {
	case *HostFrame:
		return f.Encode(), nil
	case *PluginFrame:
		return mem.BufferSlice{mem.SliceBuffer(f.Append(make([]byte, 0, f.Size())))}, nil
	case *Beat:
		return mem.BufferSlice{mem.SliceBuffer(appendVarint(nil, 1, f.Seq))}, nil
	}
	codec, err := fallback()
	if err != nil {
		return nil, err
	}
	return codec.Marshal(v)
}

// Unmarshal decodes data, which it copies once: the pieces that the transport
// hands over are used again, what frames hold is not.
func (Codec) Unmarshal(data mem.BufferSlice, v any) error {
	switch f := v.(type) {
	case *HostFrame:
		return f.Decode(data.Materialize())
	case *PluginFrame:
		return f.Decode(data.Materialize())
	case *Beat:
		return f.decode(data.Materialize())
	}
	codec, err := fallback()
	if err != nil {
		return err
	}
	return codec.Unmarshal(data, v)
}

func (b *Beat) decode(data []byte) error {
	*b = Beat{}
	s := scan{rest: data}
	for s.next() {
		if s.varint(1) {
			b.Seq = s.number
		}
	}
	return s.err
}

func fallback() (encoding.CodecV2, error) {
	if codec := encoding.GetCodecV2(proto.Name); codec != nil {
		return codec, nil
	}
	return nil, fmt.Errorf("find gRPC codec %q: it is not registered", proto.Name)
}
