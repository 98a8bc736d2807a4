// Package wire is the connection between kconsume and a handler process, as
// both of its Go ends use it: the handshake, the service, and a codec that
// reads and writes the frames of plugin/proto/handler.proto without the
// protobuf runtime. The bytes are protobuf's, so other languages notice nothing.
//
// It knows nothing of package plugin, which imports it; each end turns its own
// types into frames and back.
package wire

import (
	"math"
	"strings"
)

// The handshake between the two processes.
const (
	// ProtocolVersion is the version of the contract in handler.proto.
	ProtocolVersion = 1
	// CookieKey and CookieValue tell a handler that kconsume started it. It is
	// no secret: it keeps a person who starts a handler by hand from waiting.
	CookieKey   = "KCONSUME_HANDLER"
	CookieValue = "cc4f6a0e-handler-v1"
	// PluginName is the name under which go-plugin holds the service.
	PluginName = "handler"
	// LifelineFD is the read end of a pipe that the host holds open: at its end
	// the handler exits, whatever it is doing.
	LifelineFD = 3
)

// Bounds of what one verdict holds. Each end cuts to them: the handler so that
// its frames stay small, the host because handlers are not ours.
const (
	MaxTextBytes  = 8 << 10  // of a message, and of each cause
	MaxCodeBytes  = 256      // of a code, a reason and a rule
	MaxStackBytes = 16 << 10 // of a stack
	MaxCauses     = 16
)

// Clip cuts s to n bytes. Where it cuts, it copies: what is left does not keep
// the whole text alive.
func Clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.Clone(s[:n])
}

const (
	// MaxFrameBytes is the largest frame either end receives. A record that does
	// not fit is the host's verdict, see Record.Size, and never a broken stream.
	MaxFrameBytes = 256 << 20
	// MaxHandle is the largest handle: JavaScript's numbers are exact up to it.
	MaxHandle = 1<<53 - 1
	// MaxTimeoutMS is the longest deadline the wire can tell.
	MaxTimeoutMS = math.MaxUint32
)
