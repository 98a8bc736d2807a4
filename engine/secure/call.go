package secure

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/kconsume/kconsume/engine/internal/cursor"
)

// The few requests that are spoken here, in the oldest form that carries what
// is needed: none of them is a flexible one.
const (
	keySaslHandshake    = 17 // version 1: what follows is framed as requests
	keyAPIVersions      = 18 // version 0
	keySaslAuthenticate = 36 // version 1: with the session's life
	mostAnswer          = 256 << 10
)

// Kafka's error codes that tell something here.
const (
	codeUnsupportedVersion   = 35
	codeUnsupportedMechanism = 33
	codeIllegalSASLState     = 34
	codeAuthenticationFailed = 58
)

// errSpeaksTLS is an answer that is no answer but an alert of TLS.
var errSpeaksTLS = errors.New("the answer is a TLS alert")

// caller exchanges requests on a connection that nobody else uses meanwhile.
type caller struct {
	rw       io.ReadWriter
	clientID string
	id       int32
}

func (c *caller) call(key, version int16, body []byte) (*answer, error) {
	c.id++
	b := make([]byte, 4, 32+len(c.clientID)+len(body))
	b = binary.BigEndian.AppendUint16(b, uint16(key))
	b = binary.BigEndian.AppendUint16(b, uint16(version))
	b = binary.BigEndian.AppendUint32(b, uint32(c.id))
	b = appendText(b, c.clientID)
	b = append(b, body...)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	if _, err := c.rw.Write(b); err != nil {
		return nil, fmt.Errorf("write request: %w", err)
	}
	var head [8]byte
	// An alert is shorter than the head of an answer.
	if n, err := io.ReadFull(c.rw, head[:]); err != nil {
		if isAlert(head[:n]) {
			return nil, errSpeaksTLS
		}
		return nil, fmt.Errorf("read answer: %w", err)
	}
	size := int64(binary.BigEndian.Uint32(head[:]))
	switch {
	case isAlert(head[:]):
		return nil, errSpeaksTLS
	case size < 4 || size > mostAnswer:
		return nil, fmt.Errorf("read answer: it says that it is %d bytes long: that is no Kafka broker", size)
	case binary.BigEndian.Uint32(head[4:]) != uint32(c.id):
		return nil, errors.New("read answer: it is for another request")
	}
	rest := make([]byte, size-4)
	if _, err := io.ReadFull(c.rw, rest); err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	return &answer{cursor.Cursor{B: rest}}, nil
}

// isAlert reports the first bytes of a TLS alert. As the length of an answer
// they would be 336 MiB.
func isAlert(b []byte) bool { return len(b) >= 2 && b[0] == 0x15 && b[1] == 0x03 }

func appendText(b []byte, s string) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(len(s)))
	return append(b, s...)
}

// apiVersions asks what every client asks first.
func (c *caller) apiVersions() error {
	_, err := c.call(keyAPIVersions, 0, nil)
	return err
}

// saslHandshake names a mechanism; the broker answers with those it has.
func (c *caller) saslHandshake(mechanism string) (code int16, offered []string, err error) {
	a, err := c.call(keySaslHandshake, 1, appendText(nil, mechanism))
	if err != nil {
		return 0, nil, err
	}
	code = a.Int16()
	for n := a.Int32(); n > 0 && !a.Short; n-- {
		offered = append(offered, words(a.text()))
	}
	if a.Short {
		return 0, nil, errCutShort
	}
	return code, offered, nil
}

var errCutShort = errors.New("read answer: it ends too early")

// mostLife bounds the life of a session: what is longer is for ever.
const mostLife = 100 * 365 * 24 * time.Hour

// authenticated is a broker's answer to a step of authentication.
type authenticated struct {
	code    int16
	message string // as it came
	bytes   []byte
	life    time.Duration // of the session, 0 = it does not end
}

func (c *caller) saslAuthenticate(step []byte) (authenticated, error) {
	body := binary.BigEndian.AppendUint32(nil, uint32(len(step)))
	a, err := c.call(keySaslAuthenticate, 1, append(body, step...))
	if err != nil {
		return authenticated{}, err
	}
	out := authenticated{code: a.Int16(), message: a.text()}
	out.bytes = a.Take(int(max(0, a.Int32())))
	out.life = time.Duration(min(a.Int64(), mostLife.Milliseconds())) * time.Millisecond
	if a.Short {
		return authenticated{}, errCutShort
	}
	return out, nil
}

// answer reads an answer's body.
type answer struct{ cursor.Cursor }

// text is a text that may be null, which is "" here.
func (a *answer) text() string {
	n := a.Int16()
	if n < 0 {
		return ""
	}
	return string(a.Take(int(n)))
}
