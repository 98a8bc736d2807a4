package host

import (
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/kconsume/kconsume/plugin/internal/wire"
)

// coreVersion is the version of go-plugin's handshake itself.
const coreVersion = "1"

// socketPathLimit is how long a unix socket's path may be, in bytes.
const socketPathLimit = 107

// handshakeLine is what a handler writes to stdout to say where it listens:
// core version|contract version|network|address|protocol|certificate.
var handshakeLine = regexp.MustCompile(`^\d+\|\d+\|[a-z]+\|`)

// handshake finds the handshake among the lines of stdout. go-plugin gets it,
// and only it: any line before it would end the start. It belongs to the
// goroutine that reads stdout.
type handshake struct {
	socket string // the directory that the socket must be in
	to     *io.PipeWriter
	refuse func(error)
	log    *output
	heard  bool
}

func (h *handshake) line(line []byte, cut int) {
	if h.heard || !handshakeLine.Match(line) {
		h.log.line("stdout", line, cut)
		return
	}
	h.heard = true
	defer h.to.Close()
	text, err := acceptHandshake(string(line), h.socket)
	if err != nil {
		h.refuse(err)
		return
	}
	io.WriteString(h.to, text+"\n")
}

// acceptHandshake returns the first five fields of a handshake that is ours.
// The sixth, a certificate, makes go-plugin panic where TLS is off.
func acceptHandshake(line, socket string) (string, error) {
	f := strings.Split(strings.TrimSpace(line), "|")
	if len(f) < 5 {
		return "", fmt.Errorf("its handshake has %d fields, not 5 or more: %s", len(f), strconv.Quote(clip(line, 200)))
	}
	core, version, network, path, protocol := f[0], f[1], f[2], f[3], f[4]
	switch {
	case core != coreVersion:
		return "", fmt.Errorf("it speaks version %s of go-plugin's handshake, not %s: build it with a current SDK", core, coreVersion)
	case version != strconv.Itoa(wire.ProtocolVersion):
		return "", fmt.Errorf("it speaks version %s of the handler contract, this kconsume version %d: build it with a matching SDK", version, wire.ProtocolVersion)
	case network != "unix":
		return "", fmt.Errorf("it listens on %s, not on a unix socket: use a kconsume SDK", network)
	case protocol != "grpc":
		return "", fmt.Errorf("it speaks %q, not grpc: use a kconsume SDK", clip(protocol, 40))
	case len(path) > socketPathLimit:
		return "", fmt.Errorf("the path of its socket has %d bytes, more than %d: set a shorter runtime directory", len(path), socketPathLimit)
	case !strings.HasPrefix(filepath.Clean(path), socket+"/"):
		return "", fmt.Errorf("its socket %s is not in the directory that PLUGIN_UNIX_SOCKET_DIR names", strconv.Quote(clip(path, 200)))
	}
	return strings.Join(f[:5], "|"), nil
}
