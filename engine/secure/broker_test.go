package secure

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// broker is a listener that speaks as much of Kafka as a connection begins with.
type broker struct {
	tls        *tls.Config // nil = plain
	mechanisms []string    // nil = no SASL
	accepts    func(step []byte) bool
	life       time.Duration // of a session
	prefix     string        // of a refusal's text

	listener net.Listener
	mu       sync.Mutex
	steps    []string // of authentication
	peers    []string // common names of client certificates
	conns    []net.Conn
}

// start listens until the test ends.
func (b *broker) start(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b.listener = l
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			b.mu.Lock()
			b.conns = append(b.conns, c)
			b.mu.Unlock()
			serving.Go(func() {
				defer c.Close()
				b.serve(c)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		b.mu.Lock()
		for _, c := range b.conns {
			c.Close()
		}
		b.mu.Unlock()
		serving.Wait()
	})
	return l.Addr().String()
}

func (b *broker) serve(c net.Conn) {
	if b.tls != nil {
		s := tls.Server(c, b.tls)
		if s.Handshake() != nil {
			return
		}
		if peers := s.ConnectionState().PeerCertificates; len(peers) > 0 {
			b.mu.Lock()
			b.peers = append(b.peers, peers[0].Subject.CommonName)
			b.mu.Unlock()
		}
		c = s
	}
	r := bufio.NewReader(c)
	ready, begun := b.mechanisms == nil, false
	for {
		key, id, body, err := readRequest(r)
		if err != nil {
			return
		}
		var out []byte
		switch {
		case key == keySaslHandshake:
			mechanism := string(body[2:])
			code := int16(0)
			switch {
			case b.mechanisms == nil:
				code = codeIllegalSASLState
			case !slices.Contains(b.mechanisms, mechanism):
				code = codeUnsupportedMechanism
			}
			out = binary.BigEndian.AppendUint16(out, uint16(code))
			out = binary.BigEndian.AppendUint32(out, uint32(len(b.mechanisms)))
			for _, m := range b.mechanisms {
				out = appendText(out, m)
			}
			begun = code == 0
		case key == keySaslAuthenticate && begun:
			step := body[4:]
			b.mu.Lock()
			b.steps = append(b.steps, string(step))
			b.mu.Unlock()
			code, message := int16(0), ""
			if b.accepts != nil && !b.accepts(step) {
				code, message = codeAuthenticationFailed, b.prefix+"Authentication failed: you sent "+string(step)
			}
			out = binary.BigEndian.AppendUint16(out, uint16(code))
			out = appendText(out, strings.ToValidUTF8(message, "?"))
			out = binary.BigEndian.AppendUint32(out, 0)
			out = binary.BigEndian.AppendUint64(out, uint64(b.life.Milliseconds()))
			ready = code == 0
		case key == keyAPIVersions:
			out = []byte{0, 0, 0, 0, 0, 0}
		case !ready:
			return // as a broker does that wants SASL
		default:
			out = body // an echo stands for every other request
		}
		head := binary.BigEndian.AppendUint32(nil, uint32(4+len(out)))
		head = binary.BigEndian.AppendUint32(head, id)
		if _, err := c.Write(append(head, out...)); err != nil {
			return
		}
	}
}

func readRequest(r io.Reader) (key int16, id uint32, body []byte, err error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return 0, 0, nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > 1<<20 || n < 10 {
		return 0, 0, nil, errors.New("no request")
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return 0, 0, nil, err
	}
	named := int(binary.BigEndian.Uint16(b[8:]))
	return int16(binary.BigEndian.Uint16(b)), binary.BigEndian.Uint32(b[4:]), b[10+named:], nil
}

// echo sends a request of no meaning and checks that its own answer comes back.
func echo(t *testing.T, c net.Conn, id int32, text string) error {
	t.Helper()
	const key = 3
	call := &caller{rw: c, id: id}
	a, err := call.call(key, 0, []byte(text))
	if err != nil {
		return err
	}
	if !bytes.Equal(a.B, []byte(text)) {
		t.Fatalf("the answer is %q, want %q", a.B, text)
	}
	return nil
}
