package secure

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
)

// credentials are what one authentication goes by.
type credentials struct {
	sasl.Mechanism
	secret string // to be left out of whatever the broker says
	from   string // where a person mends it
}

// String keeps the secret from whatever prints it.
func (c *credentials) String() string { return "credentials(" + c.Name() + ")" }

// GoString is String.
func (c *credentials) GoString() string { return c.String() }

// hide takes the secret out of a text of the other side.
func (c *credentials) hide(text string) string {
	if c.secret == "" {
		return text
	}
	return strings.ReplaceAll(text, c.secret, "***")
}

// keepPassword keeps the credentials of a mechanism with a password. SCRAM's
// remember the keys that they derived, which takes thousands of hashes.
func keepPassword(s Settings, log *slog.Logger) *kept[*credentials] {
	f := file{flag: "sasl-password-file", path: s.PasswordFile, secret: true}
	return keepSecret(f, log, func(password string) (*credentials, error) {
		m, err := newPassword(s, password)
		if err != nil {
			return nil, err
		}
		return &credentials{m, password, "--sasl-username, and the password in " + s.PasswordFile}, nil
	})
}

func newPassword(s Settings, password string) (sasl.Mechanism, error) {
	if s.Mechanism == Plain {
		return plain.Mechanism{Username: s.Username, Password: password}, nil
	}
	algorithm := scram.SHA256
	if s.Mechanism == ScramSHA512 {
		algorithm = scram.SHA512
	}
	m, err := scram.Mechanism(algorithm, s.Username, password)
	if err != nil { // its text repeats what it was given
		return nil, setting("--sasl-username or the password in %s holds characters that SCRAM does not allow (RFC 4013): choose others", s.PasswordFile)
	}
	return bounded{m}, nil
}

// bounded refuses a broker that asks for too few hashes, so that a listener
// could guess the password, or for so many that it would keep us busy. Kafka's
// own bounds are 4096 and 16384.
type bounded struct{ sasl.Mechanism }

const (
	leastIterations = 4096
	mostIterations  = 1 << 20
)

func (b bounded) Start(ctx context.Context) (sasl.StateMachine, []byte, error) {
	s, first, err := b.Mechanism.Start(ctx)
	return &boundedSession{StateMachine: s}, first, err
}

type boundedSession struct {
	sasl.StateMachine
	steps int
}

func (s *boundedSession) Next(ctx context.Context, challenge []byte) (bool, []byte, error) {
	if s.steps++; s.steps == 1 {
		if n := iterationsOf(challenge); n < leastIterations || n > mostIterations {
			return false, nil, fmt.Errorf("it asks for %d iterations, and %d to %d are safe", n, leastIterations, mostIterations)
		}
	}
	return s.StateMachine.Next(ctx, challenge)
}

// iterationsOf is what a server's first message asks for, −1 if it does not say.
func iterationsOf(challenge []byte) int {
	for part := range bytes.SplitSeq(challenge, []byte(",")) {
		if n, ok := bytes.CutPrefix(part, []byte("i=")); ok {
			if i, err := strconv.Atoi(string(n)); err == nil {
				return i
			}
		}
	}
	return -1
}

// bearer is OAUTHBEARER (RFC 7628) with one token.
type bearer struct{ token string }

func (bearer) Name() string { return OAuthBearer.wire() }

func (b bearer) Start(context.Context) (sasl.StateMachine, []byte, error) {
	return &bearerSession{}, []byte("n,,\x01auth=Bearer " + b.token + "\x01\x01"), nil
}

// bearerSession answers a refusal, which the broker gives as a challenge, with
// the one byte on which it then fails.
type bearerSession struct{ refused bool }

func (s *bearerSession) Next(_ context.Context, challenge []byte) (bool, []byte, error) {
	if len(challenge) == 0 {
		return true, nil, nil
	}
	if s.refused {
		return false, nil, errors.New("it refuses the token and goes on")
	}
	s.refused = true
	return false, []byte{1}, nil
}

// tokenForm is what a token may be made of (RFC 6750).
var tokenForm = regexp.MustCompile(`^[A-Za-z0-9._~+/-]+=*$`)

func newBearer(token, from string) (*credentials, error) {
	if len(token) > mostSecret || !tokenForm.MatchString(token) {
		return nil, setting("%s: that is no bearer token: it must be one word of letters, digits and -._~+/", from)
	}
	return &credentials{bearer{token}, token, from}, nil
}

func keepToken(s Settings, log *slog.Logger) *kept[*credentials] {
	f := file{flag: "sasl-oauth-token-file", path: s.TokenFile, secret: true}
	return keepSecret(f, log, func(token string) (*credentials, error) {
		return newBearer(strings.TrimSpace(token), "--sasl-oauth-token-file "+s.TokenFile)
	})
}

// mostSteps bounds an authentication: SCRAM takes two, a refused token two.
const mostSteps = 4

// authenticate authenticates a connection and returns how long that lasts,
// 0 = as long as the connection.
func (d *Dialer) authenticate(ctx context.Context, rw io.ReadWriter, address string, share float64) (life time.Duration, err error) {
	creds, err := d.credentials(ctx, share)
	if err != nil {
		return 0, err
	}
	c := &caller{rw: rw, clientID: d.clientID}
	code, offered, err := c.saslHandshake(creds.Name())
	if err != nil {
		return 0, fmt.Errorf("begin SASL: %w", err)
	}
	if err := d.unoffered(address, code, offered); err != nil {
		return 0, err
	}
	session, step, err := creds.Start(ctx)
	if err != nil {
		return 0, setting("--sasl-mechanism %s cannot start: check %s", d.settings.Mechanism, creds.from)
	}
	for range mostSteps {
		a, err := c.saslAuthenticate(step)
		if err != nil {
			return 0, fmt.Errorf("authenticate by SASL: %w", err)
		}
		if a.code != 0 {
			return 0, d.refused(address, creds, a)
		}
		done, next, err := session.Next(ctx, a.bytes)
		if err != nil {
			return 0, denied("broker %s does not prove that it knows user %s: %s: check that it is the broker that you mean, and the password in %s",
				address, words(d.settings.Username), words(creds.hide(err.Error())), d.settings.PasswordFile)
		}
		if done {
			return a.life, nil
		}
		step = next
	}
	return 0, denied("broker %s never ends the authentication: check that it is the broker that you mean", address)
}

// unoffered says what is wrong where a broker does not take our mechanism.
func (d *Dialer) unoffered(address string, code int16, offered []string) error {
	switch code {
	case 0:
		return nil
	case codeUnsupportedMechanism:
		return setting("broker %s does not take SASL %s, but %s: choose one of them with --sasl-mechanism", address, d.settings.Mechanism.wire(), words(strings.Join(offered, ", ")))
	case codeIllegalSASLState:
		return setting("broker %s takes no SASL at this port: take the port of its SASL listener, or remove --sasl-mechanism", address)
	case codeUnsupportedVersion:
		return setting("broker %s is older than Kafka 1.0, whose SASL this does not speak: connect to a newer one", address)
	}
	return unavailable("broker %s cannot begin SASL: error %d: see its log", address, code)
}

// refused is the broker's no to our credentials.
func (d *Dialer) refused(address string, creds *credentials, a authenticated) error {
	said := words(creds.hide(a.message)) // in this order: a secret that is cut in two is not found
	if said == "" {
		said = fmt.Sprintf("error %d", a.code)
	}
	switch {
	case a.code != codeAuthenticationFailed:
		return unavailable("broker %s cannot authenticate us: error %d, %s: see its log", address, a.code, said)
	case d.settings.Mechanism == OAuthBearer:
		if d.tokens != nil {
			d.tokens.drop(creds)
		}
		return denied("broker %s refuses the token (%s): it may have expired, or be for another audience or scope: check %s", address, said, creds.from)
	}
	return denied("broker %s refuses user %s by %s (%s): check %s", address, words(d.settings.Username), d.settings.Mechanism.wire(), said, creds.from)
}
