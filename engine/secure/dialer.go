package secure

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"
)

// Config is what a Dialer needs beside its settings.
type Config struct {
	Settings Settings
	ClientID string
	// Dial opens the connection itself. nil = net.Dialer, for five seconds at most.
	Dial   func(ctx context.Context, network, address string) (net.Conn, error)
	Logger *slog.Logger // nil = none
}

// Dialer connects to brokers. Safe for concurrent use.
type Dialer struct {
	settings Settings
	clientID string
	dial     func(ctx context.Context, network, address string) (net.Conn, error)

	authorities *kept[*x509.CertPool] // nil = the system's
	identity    *kept[*identity]      // nil = none
	password    *kept[*credentials]   // nil = no such mechanism
	tokenFile   *kept[*credentials]   // nil = no such mechanism
	tokens      *tokens               // nil = no such mechanism

	renewed  atomic.Int64 // sessions that were renewed
	looking  looks
	lastSeen atomic.Pointer[string] // the subject of the last token
}

const (
	plainTimeout = 5 * time.Second
	// openTimeout bounds what a connection begins with: a token's request may be
	// among it.
	openTimeout = 10 * time.Second
)

// Timeout is what one connection may take.
func (d *Dialer) Timeout() time.Duration {
	if d.settings.plain() {
		return plainTimeout
	}
	return openTimeout
}

// New makes a dialer for settings that Validate has passed. It reads no file.
func New(c Config) *Dialer {
	d := &Dialer{settings: c.Settings, clientID: c.ClientID, dial: c.Dial}
	if d.dial == nil {
		d.dial = (&net.Dialer{Timeout: plainTimeout}).DialContext
	}
	log := c.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := c.Settings
	if s.TLS {
		d.authorities, d.identity = keepAuthorities(s, log), keepIdentity(s, log)
	}
	switch {
	case s.Mechanism.password():
		d.password = keepPassword(s, log)
	case s.Mechanism == OAuthBearer && s.TokenFile != "":
		d.tokenFile = keepToken(s, log)
	case s.Mechanism == OAuthBearer:
		d.tokens = newTokens(s, log)
	}
	return d
}

// Check reads every file once and says what is wrong with them.
func (d *Dialer) Check() error {
	var errs []error
	note := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	if d.authorities != nil {
		_, err := d.authorities.get()
		note(err)
	}
	if d.identity != nil {
		_, err := d.identity.get()
		note(err)
	}
	for _, k := range []*kept[*credentials]{d.password, d.tokenFile} {
		if k != nil {
			_, err := k.get()
			note(err)
		}
	}
	if d.tokens != nil {
		_, err := d.tokens.secret.get()
		note(err)
	}
	return errors.Join(errs...)
}

// Dial opens a connection and makes it ready for requests: TLS first, then SASL.
// Errors that a setting or a permission mends are of type *Error.
func (d *Dialer) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	raw, err := d.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: raw, d: d, address: address}
	if d.settings.plain() {
		return c, nil
	}
	if err := d.open(ctx, c); err != nil {
		c.Conn.Close()
		return nil, err
	}
	return c, nil
}

// open does what a connection begins with, within ctx.
func (d *Dialer) open(ctx context.Context, c *conn) error {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	raw := c.Conn
	defer context.AfterFunc(ctx, func() { raw.Close() })()
	met := &meeting{settings: d.settings, address: c.address}
	if d.settings.TLS {
		var err error
		var secured *tls.Conn
		if secured, met, err = d.handshake(ctx, raw, c.address); err != nil {
			return d.suspect(ctx, c.address, late(ctx, c.address, err))
		}
		c.Conn = secured
	}
	var life time.Duration
	var err error
	if d.settings.Mechanism != "" {
		life, err = d.authenticate(ctx, c.Conn, c.address, tokenShare)
	} else {
		// With TLS 1.3 a broker refuses our certificate, or the lack of one, in
		// what we read first.
		err = (&caller{rw: c.Conn, clientID: d.clientID}).apiVersions()
	}
	switch {
	case err == nil:
		c.ends = life > 0
		c.lasts(life)
		return nil
	case errors.Is(err, errSpeaksTLS):
		return wantsTLS(c.address)
	case KindOf(err) != "":
		return err
	case alertOf(err) != "":
		return met.explain(err)
	}
	return d.suspect(ctx, c.address, late(ctx, c.address, err))
}

// late tells of a broker that did not answer in time; what cutting it off led to
// does not matter then.
func late(ctx context.Context, address string, err error) error {
	if ctx.Err() == nil || KindOf(err) != "" {
		return err
	}
	return unavailable("broker %s took the connection and did not answer in time: check that a broker listens there", address)
}

// credentials are those of the next authentication. share is how much of a
// token's life may be over.
func (d *Dialer) credentials(ctx context.Context, share float64) (creds *credentials, err error) {
	switch {
	case d.password != nil:
		return d.password.get()
	case d.tokenFile != nil:
		creds, err = d.tokenFile.get()
	default:
		creds, err = d.tokens.get(ctx, share)
	}
	if err == nil {
		subject := words(claimsOf(creds.secret).Subject)
		d.lastSeen.Store(&subject)
	}
	return creds, err
}

// Principal is whom brokers most likely take this client for, as kafka-acls
// names it. "" = that is not known.
func (d *Dialer) Principal() string {
	switch {
	case d.settings.Mechanism.password():
		return "User:" + d.settings.Username
	case d.settings.Mechanism == OAuthBearer:
		if s := d.lastSeen.Load(); s != nil && *s != "" {
			return "User:" + *s
		}
		return ""
	case d.identity != nil:
		if ours, err := d.identity.get(); err == nil {
			return "User:" + ours.leaf.Subject.String()
		}
		return ""
	}
	return "User:ANONYMOUS"
}

// Transport is a kafka-go transport that connects by a Dialer.
type Transport struct {
	*kafka.Transport
	dialer *Dialer
}

// Transport makes one that knows some topics. nil = all topics.
func (d *Dialer) Transport(topics []string) *Transport {
	return &Transport{
		&kafka.Transport{Dial: d.Dial, DialTimeout: d.Timeout(), ClientID: d.clientID, MetadataTopics: topics}, d,
	}
}

// Current is the transport itself.
func (t *Transport) Current() *kafka.Transport { return t.Transport }

// Principal is the dialer's.
func (t *Transport) Principal() string { return t.dialer.Principal() }
