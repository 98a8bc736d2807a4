package secure

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
)

const (
	tokenTimeout = 5 * time.Second // of one request, both ways of naming the client counted
	tokenLife    = 5 * time.Minute // of a token that does not say
	// tokenShare of its life a token begins connections; then a new one is asked
	// for. For the renewal of a session, which often ends with its token, it must
	// be younger: what the endpoint and the broker take for its end may differ.
	tokenShare   = 0.8
	renewalShare = 0.5
	tokenWaitMin = time.Second
	tokenWaitMax = 15 * time.Second
)

// tokens are access tokens by the client credentials grant. One is used until
// most of its life is over; if no other is to be had by then, to its end. One
// request is under way at a time; safe for concurrent use.
type tokens struct {
	settings Settings
	secret   *kept[string]
	log      *slog.Logger
	now      func() time.Time

	turn chan struct{} // holds one: who takes it owns what follows
	// The present token, nil = none yet.
	creds           *credentials
	issued, expires time.Time
	// No request before, and what the last one failed with.
	notBefore time.Time
	wait      time.Duration
	failed    error
}

func newTokens(s Settings, log *slog.Logger) *tokens {
	f := file{flag: "sasl-oauth-client-secret-file", path: s.ClientSecretFile, secret: true}
	t := &tokens{settings: s, log: log, now: time.Now, turn: make(chan struct{}, 1)}
	t.secret = keepSecret(f, log, func(secret string) (string, error) { return secret, nil })
	t.turn <- struct{}{}
	return t
}

// get is a token of which at most a share of its life is over, if one can be had,
// else one that is valid still.
func (t *tokens) get(ctx context.Context, share float64) (*credentials, error) {
	select {
	case <-t.turn:
	case <-ctx.Done():
		return nil, unavailable("token endpoint %s: no answer yet: it is asked again", t.host())
	}
	defer func() { t.turn <- struct{}{} }()
	now := t.now()
	if t.creds != nil && now.Before(t.issued.Add(time.Duration(float64(t.expires.Sub(t.issued))*share))) {
		return t.creds, nil
	}
	if !now.Before(t.notBefore) {
		t.failed = t.renew(ctx)
		t.pace(t.now())
	}
	switch {
	case t.failed == nil:
		return t.creds, nil
	case t.creds != nil && t.now().Before(t.expires):
		return t.creds, nil
	}
	return nil, t.failed
}

// drop forgets a token that a broker refuses.
func (t *tokens) drop(creds *credentials) {
	<-t.turn
	defer func() { t.turn <- struct{}{} }()
	if t.creds == creds {
		t.creds = nil
	}
}

// pace sets when the next request may be made after one that failed.
func (t *tokens) pace(now time.Time) {
	if t.failed == nil {
		t.wait, t.notBefore = 0, time.Time{}
		return
	}
	t.log.Debug("no new token", "error", t.failed.Error())
	t.wait = min(tokenWaitMax, max(tokenWaitMin, 2*t.wait))
	t.notBefore = now.Add(t.wait)
}

func (t *tokens) host() string {
	u, err := url.Parse(t.settings.TokenURL)
	if err != nil {
		return "of --sasl-oauth-token-url"
	}
	return words(u.Host)
}

// renew asks the endpoint for a token.
func (t *tokens) renew(ctx context.Context) error {
	secret, err := t.secret.get()
	if err != nil {
		return err
	}
	client, err := t.client()
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, tokenTimeout)
	defer cancel()
	grant := clientcredentials.Config{
		ClientID: t.settings.ClientID, ClientSecret: secret, TokenURL: t.settings.TokenURL, Scopes: strings.Fields(t.settings.Scope),
	}
	got, err := grant.Token(context.WithValue(ctx, oauth2.HTTPClient, client))
	if err != nil {
		return t.explain(err)
	}
	creds, err := newBearer(got.AccessToken, "--sasl-oauth-client-id, --sasl-oauth-scope and what the token endpoint gives it")
	if err != nil {
		return unavailable("token endpoint %s: what it gives is no bearer token: check --sasl-oauth-token-url", t.host())
	}
	t.creds, t.issued = creds, t.now()
	t.expires = earlier(got.Expiry, claimsOf(got.AccessToken).end())
	if t.expires.IsZero() {
		t.expires = t.issued.Add(tokenLife)
	}
	return nil
}

// earlier is the earlier of two times, of which zero ones do not count.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// client follows no redirect, which would carry the secret elsewhere, and knows
// the authorities of the brokers beside the system's.
func (t *tokens) client() (*http.Client, error) {
	tr := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: tokenTimeout}).DialContext,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}, DisableKeepAlives: true,
		TLSHandshakeTimeout: tokenTimeout, ResponseHeaderTimeout: tokenTimeout, MaxResponseHeaderBytes: 64 << 10,
	}
	if t.settings.CAFile != "" {
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		pem, _, err := file{flag: "tls-ca", path: t.settings.CAFile}.read()
		if err != nil {
			return nil, err
		}
		pool.AppendCertsFromPEM(pem)
		tr.TLSClientConfig.RootCAs = pool
	}
	return &http.Client{Transport: tr, Timeout: tokenTimeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, nil
}

// explain says why there is no token. What the endpoint said is not repeated,
// but for its one word: it might hold what it was sent.
func (t *tokens) explain(err error) *Error {
	if e, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		return t.turnedDown(e.Response.StatusCode, e.ErrorCode)
	}
	switch {
	case isUntrusted(err):
		return setting("token endpoint %s: its certificate is not one that this host trusts: add its authority's to --tls-ca", t.host())
	case isTimeout(err):
		return unavailable("token endpoint %s: no answer within %v: check that it runs and can be reached", t.host(), tokenTimeout)
	}
	if e, ok := errors.AsType[*net.OpError](err); ok {
		return unavailable("token endpoint %s: %s: check --sasl-oauth-token-url, and that it runs", t.host(), words(e.Err.Error()))
	}
	if e, ok := errors.AsType[*net.DNSError](err); ok {
		return unavailable("token endpoint %s: no such host (%s): check --sasl-oauth-token-url", t.host(), words(e.Err))
	}
	return unavailable("token endpoint %s: its answer holds no token: check --sasl-oauth-token-url", t.host())
}

func (t *tokens) turnedDown(status int, code string) *Error {
	what := fmt.Sprint("status ", status)
	if isWord(code) {
		what += ", " + code
	}
	switch {
	case status >= 300 && status < 400:
		return setting("token endpoint %s: it points to another address (%s): give that with --sasl-oauth-token-url", t.host(), what)
	case status == http.StatusNotFound || status == http.StatusMethodNotAllowed:
		return setting("token endpoint %s: there is none at that path (%s): check --sasl-oauth-token-url", t.host(), what)
	case status >= 500 || status == http.StatusTooManyRequests || status == http.StatusRequestTimeout:
		return unavailable("token endpoint %s: it gives no token now (%s): it is asked again", t.host(), what)
	case code == "invalid_scope":
		return denied("token endpoint %s: it does not give the scope (%s): check --sasl-oauth-scope", t.host(), what)
	}
	return denied("token endpoint %s: it refuses client %s (%s): check --sasl-oauth-client-id, and the secret in %s", t.host(), words(t.settings.ClientID), what, t.settings.ClientSecretFile)
}

// isWord reports an error code as RFC 6749 has them: nothing secret fits in.
func isWord(s string) bool {
	return s != "" && len(s) <= 32 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz_") == ""
}

func isUntrusted(err error) bool {
	_, ok := errors.AsType[*tls.CertificateVerificationError](err)
	return ok
}

func isTimeout(err error) bool {
	n, ok := errors.AsType[net.Error](err)
	return ok && n.Timeout() || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// claims are what a token says of itself. What it is good for the broker decides.
type claims struct {
	Subject string  `json:"sub"`
	Expires float64 `json:"exp"` // unix seconds
}

// claimsOf reads a token that is a JWT; of another kind nothing is known.
func claimsOf(token string) (c claims) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return claims{}
	}
	body, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(body, &c) != nil {
		return claims{}
	}
	return c
}

// end is when the token says that it ends, zero if it does not.
func (c claims) end() time.Time {
	const year9999 = 253402300799
	if c.Expires <= 0 || c.Expires > year9999 {
		return time.Time{}
	}
	return time.UnixMilli(int64(c.Expires * 1000))
}
