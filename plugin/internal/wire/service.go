package wire

import (
	"context"

	"google.golang.org/grpc"
)

// ServiceName is the service's name in handler.proto.
const ServiceName = "kconsume.handler.v1.Handler"

// windowBytes is how much the other end may send ahead of what has been read:
// more than what is in flight at most, so that a frame never waits for credit.
const windowBytes = 4 << 20

// Server is the handler's end of the service. Streams are read best with
// RecvMsg into a frame that is used again.
type Server interface {
	Deliver(grpc.BidiStreamingServer[HostFrame, PluginFrame]) error
	Control(grpc.BidiStreamingServer[Beat, Beat]) error
}

// ServiceDesc describes the service. The server and the connection must use
// Codec: see ServerOptions and CallOptions.
func ServiceDesc() *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: ServiceName,
		HandlerType: (*Server)(nil),
		Metadata:    "handler.proto",
		Streams: []grpc.StreamDesc{
			{
				StreamName:    "Deliver",
				ServerStreams: true,
				ClientStreams: true,
				Handler: func(srv any, s grpc.ServerStream) error {
					return srv.(Server).Deliver(&grpc.GenericServerStream[HostFrame, PluginFrame]{ServerStream: s})
				},
			},
			{
				StreamName:    "Control",
				ServerStreams: true,
				ClientStreams: true,
				Handler: func(srv any, s grpc.ServerStream) error {
					return srv.(Server).Control(&grpc.GenericServerStream[Beat, Beat]{ServerStream: s})
				},
			},
		},
	}
}

// ServerOptions are what the handler's gRPC server needs.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(Codec{}),
		grpc.MaxRecvMsgSize(MaxFrameBytes),
		grpc.MaxSendMsgSize(MaxFrameBytes),
		grpc.InitialWindowSize(windowBytes),
		grpc.InitialConnWindowSize(windowBytes),
	}
}

// DialOptions are what the host's connection needs, go-plugin's dialling
// included.
func DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithDefaultCallOptions(CallOptions()...),
		grpc.WithInitialWindowSize(windowBytes),
		grpc.WithInitialConnWindowSize(windowBytes),
	}
}

// CallOptions are what a call needs on a connection made without DialOptions.
func CallOptions() []grpc.CallOption {
	return []grpc.CallOption{
		grpc.ForceCodecV2(Codec{}),
		grpc.MaxCallRecvMsgSize(MaxFrameBytes),
		grpc.MaxCallSendMsgSize(MaxFrameBytes),
	}
}

// Deliver opens the stream of records on a handler's connection. Send and
// receive on it from a goroutine each. A frame can be sent again as soon as
// SendMsg has returned. SendMsg's io.EOF only says that the stream has ended;
// RecvMsg's error says why.
func Deliver(ctx context.Context, conn grpc.ClientConnInterface) (grpc.BidiStreamingClient[HostFrame, PluginFrame], error) {
	s, err := conn.NewStream(ctx, &ServiceDesc().Streams[0], "/"+ServiceName+"/Deliver", CallOptions()...)
	if err != nil {
		return nil, err
	}
	return &grpc.GenericClientStream[HostFrame, PluginFrame]{ClientStream: s}, nil
}

// Control opens the stream of beats on a handler's connection.
func Control(ctx context.Context, conn grpc.ClientConnInterface) (grpc.BidiStreamingClient[Beat, Beat], error) {
	s, err := conn.NewStream(ctx, &ServiceDesc().Streams[1], "/"+ServiceName+"/Control", CallOptions()...)
	if err != nil {
		return nil, err
	}
	return &grpc.GenericClientStream[Beat, Beat]{ClientStream: s}, nil
}
