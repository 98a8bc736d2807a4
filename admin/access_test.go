package admin

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kconsume/kconsume/admin/dlq"
	"github.com/kconsume/kconsume/metrics"
	"github.com/prometheus/client_golang/prometheus"
)

const (
	viewerToken   = "viewer-token-viewer-token-viewer-token"
	operatorToken = "operator-token-operator-token-operator"
)

// fileWith makes a file of a mode.
func fileWith(t *testing.T, mode os.FileMode, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func tokens(t *testing.T) *Tokens {
	t.Helper()
	all, err := ReadTokens(fileWith(t, 0o640, "# who\nviewer ada "+viewerToken+"\noperator bob "+operatorToken+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestAccessFilesThatAreRefused(t *testing.T) {
	secret := "this-is-a-secret-and-never-printed-1234567"
	for _, c := range []struct {
		name, text string
		mode       os.FileMode
		tokens     bool
		want       []string
	}{
		{"tokens others may read", "admin a " + secret, 0o644, true, []string{"--admin-tokens", "0644", "chmod 0640"}},
		{"tokens a group may write", "admin a " + secret, 0o660, true, []string{"0660", "chmod 0640"}},
		{"no role", "root a " + secret, 0o600, true, []string{":1", "viewer, reader, operator or admin"}},
		{"the token alone", secret, 0o600, true, []string{":1", "no role"}},
		{"no name", "admin " + secret, 0o600, true, []string{":1", "ROLE NAME TOKEN"}},
		{"short", "# x\n\nadmin a short-secret-x", 0o600, true, []string{":3", "14 bytes", "openssl rand"}},
		{"empty", "# none\n", 0o600, true, []string{"no token"}},
		{"users others may write", "admin user:a", 0o646, false, []string{"--admin-users", "0646", "chmod 0644"}},
		{"users without a kind", "admin ada", 0o644, false, []string{":1", "user:NAME"}},
		{"users twice", "admin user:a\nviewer user:a", 0o644, false, []string{":2", "twice"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := fileWith(t, c.mode, c.text)
			var err error
			if c.tokens {
				_, err = ReadTokens(path)
			} else {
				_, err = ReadUsers(path)
			}
			if err == nil {
				t.Fatal("it is accepted")
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q does not say %q", err, w)
				}
			}
			if strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "short-secret") {
				t.Errorf("it tells the secret: %q", err)
			}
		})
	}
}

// A file with an error keeps what was before; a token that is taken out ends
// the sessions that began with it.
func TestReload(t *testing.T) {
	path := fileWith(t, 0o600, "admin ada "+viewerToken+"\n")
	all, err := ReadTokens(path)
	if err != nil {
		t.Fatal(err)
	}
	a := &Access{Tokens: all}
	actor, err := a.token(viewerToken)
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.AddCookie(a.sessions.begin(actor, true))
	if err := os.WriteFile(path, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := all.Reload(); err == nil {
		t.Fatal("nonsense is accepted")
	}
	if got, err := a.identify(r); err != nil || got.Via != viaConsole || got.Role != dlq.RoleAdmin {
		t.Errorf("after a bad file: %+v, %v", got, err)
	}
	if err := os.WriteFile(path, []byte("admin bob "+operatorToken), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := all.Reload(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.identify(r); err == nil {
		t.Error("the session of a token that is gone goes on")
	}
}

func TestPeers(t *testing.T) {
	users, err := ReadUsers(fileWith(t, 0o644, "reader uid:4711\nadmin user:daemon\n"))
	if err != nil {
		t.Fatal(err)
	}
	a := &Access{OperatorGroup: "adm", Users: users} // group 4 on Debian
	for _, c := range []struct {
		name string
		peer Peer
		want dlq.Role
	}{
		{"root", Peer{UID: 0}, dlq.RoleAdmin},
		{"our own user", Peer{UID: os.Geteuid()}, dlq.RoleAdmin},
		{"by uid", Peer{UID: 4711, GID: 4711}, dlq.RoleReader},
		{"by name", Peer{UID: 1, GID: 1}, dlq.RoleAdmin},
		{"by group", Peer{UID: 4712, GID: 4}, dlq.RoleOperator},
		{"nobody", Peer{UID: 4713, GID: 4713}, ""},
	} {
		got, err := a.peer(c.peer)
		if got.Role != c.want || (err == nil) != (c.want != "") || got.Via != viaSocket {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
}

func TestListenTCPRefuses(t *testing.T) {
	access := &Access{Tokens: tokens(t)}
	for _, c := range []struct {
		name   string
		tcp    TCP
		access *Access
		want   string
	}{
		{"no port", TCP{Address: "127.0.0.1"}, access, "HOST:PORT"},
		{"everywhere without TLS", TCP{Address: "0.0.0.0:0"}, access, "--admin-tls-cert"},
		{"every address of six", TCP{Address: "[::]:0"}, access, "--admin-tls-cert"},
		{"no host at all", TCP{Address: ":0"}, access, "--admin-tls-cert"},
		{"a name that may be anything", TCP{Address: "127.evil.com:0"}, access, "--admin-tls-cert"},
		{"nobody told apart", TCP{Address: "127.0.0.1:0"}, &Access{}, "--admin-tokens"},
		{"a certificate without its key", TCP{Address: "127.0.0.1:0", CertFile: "x"}, access, "give both"},
		{"client certificates without TLS", TCP{Address: "127.0.0.1:0", ClientCA: "x"}, access, "need TLS"},
		{"no such certificate", TCP{Address: "127.0.0.1:0", CertFile: "/none", KeyFile: "/none"}, access, "/none"},
	} {
		l, err := ListenTCP(c.tcp, c.access)
		if err == nil {
			l.Close()
			t.Errorf("%s: it listens", c.name)
			continue
		}
		if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %q does not say %q", c.name, err, c.want)
		}
	}
}

// overTCP serves an API on loopback and returns its address.
func overTCP(t *testing.T, c Config) string {
	t.Helper()
	l, err := ListenTCP(c.TCP, c.Access)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	c.Logger = slog.New(slog.DiscardHandler)
	go func() { done <- Serve(ctx, l, New(c), c.Logger) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// What a page of another site, a borrowed name or a stranger can do: nothing.
func TestStrangersOverTCP(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := metrics.NewAdmin(reg)
	address := overTCP(t, Config{
		Status: func(context.Context) (any, error) { return 1, nil }, TCP: TCP{Address: "127.0.0.1:0"},
		Access: &Access{Tokens: tokens(t)}, DLQ: dlq.New(dlq.Config{}), Metrics: m,
	})
	for _, c := range []struct {
		name, method, path, host, token string
		headers                         map[string]string
		want                            int
	}{
		{"a token", "GET", "/v1/status", "", viewerToken, nil, 200},
		{"localhost", "GET", "/v1/status", "localhost", viewerToken, nil, 200},
		{"IPv6's", "GET", "/v1/status", "[::1]:9", viewerToken, nil, 200},
		{"no token", "GET", "/v1/status", "", "", nil, 401},
		{"another token", "GET", "/v1/status", "", strings.Repeat("x", 40), nil, 401},
		{"an empty token", "GET", "/v1/status", "", " ", nil, 401},
		{"a borrowed name", "GET", "/v1/status", "evil.com", viewerToken, nil, 403},
		{"a name that looks like loopback", "GET", "/v1/status", "127.evil.com", viewerToken, nil, 403},
		{"another one", "GET", "/v1/status", "127.0.0.1.evil.com", viewerToken, nil, 403},
		{"another address", "GET", "/v1/status", "10.0.0.1", viewerToken, nil, 403},
		{"too low a role", "POST", "/v1/dlq/t.dlq/replay", "", viewerToken, nil, 403},
		{"payloads", "GET", "/v1/dlq/t.dlq/messages?payload=1", "", viewerToken, nil, 403},
		{"export", "GET", "/v1/dlq/t.dlq/export", "", viewerToken, nil, 403},
		{"another site's form", "POST", "/v1/dlq/t.dlq/replay", "", operatorToken, map[string]string{"Sec-Fetch-Site": "cross-site"}, 403},
		{"another origin", "POST", "/v1/dlq/t.dlq/replay", "", operatorToken, map[string]string{"Origin": "http://evil.com"}, 403},
		{"no DLQ of ours", "GET", "/v1/dlq/t.dlq/groups", "", viewerToken, nil, 404},
		{"limit 0", "POST", "/v1/dlq/t.dlq/replay?limit=0", "", operatorToken, nil, 400},
		{"limit -1", "POST", "/v1/dlq/t.dlq/replay?limit=-1", "", operatorToken, nil, 400},
		{"limit 101", "POST", "/v1/dlq/t.dlq/replay?limit=101", "", operatorToken, nil, 400},
		{"limit 10.5", "POST", "/v1/dlq/t.dlq/replay?limit=10.5", "", operatorToken, nil, 400},
		{"limit x", "POST", "/v1/dlq/t.dlq/replay?limit=x", "", operatorToken, nil, 400},
		{"limit empty", "POST", "/v1/dlq/t.dlq/replay?limit=", "", operatorToken, nil, 400},
		{"limit twice", "POST", "/v1/dlq/t.dlq/replay?limit=1&limit=2", "", operatorToken, nil, 400},
		{"limit misspelled", "POST", "/v1/dlq/t.dlq/replay?limt=5", "", operatorToken, nil, 400},
		{"replay by GET", "GET", "/v1/dlq/t.dlq/replay", "", operatorToken, nil, 405},
		{"no JSON", "POST", "/v1/dlq/t.dlq/plans", "", operatorToken, nil, 415},
	} {
		t.Run(c.name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), c.method, "http://"+address+c.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			if c.host != "" {
				req.Host = c.host
			}
			if c.token != "" {
				req.Header.Set("Authorization", "Bearer "+c.token)
			}
			for k, v := range c.headers {
				req.Header.Set(k, v)
			}
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			body, err := io.ReadAll(res.Body)
			if err != nil {
				t.Fatal(err)
			}
			if res.StatusCode != c.want {
				t.Fatalf("%s: %s", res.Status, body)
			}
			if c.want >= 400 && res.Header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("%s", res.Header.Get("Content-Type"))
			}
			if strings.Contains(string(body), operatorToken) || strings.Contains(string(body), viewerToken) {
				t.Errorf("it tells a token: %s", body)
			}
		})
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	denied := map[string]float64{}
	for _, f := range families {
		for _, one := range f.GetMetric() {
			if f.GetName() == "kconsume_admin_denied_total" {
				denied[one.GetLabel()[0].GetValue()] = one.GetCounter().GetValue()
			}
		}
	}
	if want := map[string]float64{"unknown": 3, "host": 4, "role": 2, "cross_origin": 2}; !maps.Equal(denied, want) {
		t.Errorf("denied %v, want %v", denied, want)
	}
}

func TestLargeBodies(t *testing.T) {
	address := overTCP(t, Config{TCP: TCP{Address: "127.0.0.1:0"}, Access: &Access{Tokens: tokens(t)}, DLQ: dlq.New(dlq.Config{})})
	for _, path := range []string{"/v1/dlq/t.dlq/plans", "/v1/dlq/t.dlq/replay", "/v1/jobs/x/cancel"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+path, strings.NewReader(`{"reason":"`+strings.Repeat("x", 2<<20)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+operatorToken)
		req.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if want := http.StatusRequestEntityTooLarge; path != "/v1/dlq/t.dlq/replay" && res.StatusCode != want || res.StatusCode < 400 {
			t.Errorf("%s: %s", path, res.Status)
		}
	}
}

// A browser shows its token once; the cookie is for this site and no script.
func TestLogin(t *testing.T) {
	console := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		actor, _ := ActorOf(r.Context())
		_, _ = io.WriteString(w, "console of "+actor.Name)
	})
	address := overTCP(t, Config{TCP: TCP{Address: "127.0.0.1:0"}, Access: &Access{Tokens: tokens(t)}, Console: console})
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	get := func(path string, cookie *http.Cookie) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if cookie != nil {
			req.AddCookie(cookie)
		}
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	res := get("/dlq?x=1", nil)
	res.Body.Close()
	if res.StatusCode != http.StatusSeeOther || res.Header.Get("Location") != "/login?next=%2Fdlq%3Fx%3D1" {
		t.Fatalf("%s to %s", res.Status, res.Header.Get("Location"))
	}
	post := func(token, next string) *http.Response {
		t.Helper()
		res, err := client.PostForm("http://"+address+"/login", url.Values{"token": {token}, "next": {next}})
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res
	}
	if res := post("wrong", "/"); len(res.Cookies()) != 0 || !strings.HasPrefix(res.Header.Get("Location"), "/login?failed=1") {
		t.Errorf("a wrong token: %v", res.Header)
	}
	for next, want := range map[string]string{"/dlq?x=1": "/dlq?x=1", "//evil.com": "/", "https://evil.com/": "/", `/\evil.com`: "/", "": "/"} {
		res := post(viewerToken, next)
		if len(res.Cookies()) != 1 || res.Header.Get("Location") != want {
			t.Fatalf("%q: %v", next, res.Header)
		}
		c := res.Cookies()[0]
		if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Secure || strings.Contains(c.Value, viewerToken) {
			t.Errorf("cookie %+v", c)
		}
		page := get("/dlq", c)
		body, err := io.ReadAll(page.Body)
		page.Body.Close()
		if err != nil || string(body) != "console of ada" {
			t.Errorf("%s (%v)", body, err)
		}
	}
}

// certify makes a certificate signed by a parent, by itself without one.
func certify(t *testing.T, name string, parent *tls.Certificate) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{"kconsume.test"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: parent == nil, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	signer, by := any(key), template
	if parent != nil {
		signer, by = parent.PrivateKey, parent.Leaf
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// pemFiles writes a certificate and its key.
func pemFiles(t *testing.T, c *tls.Certificate) (cert, key string) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return fileWith(t, 0o644, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]}))),
		fileWith(t, 0o600, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})))
}

func TestClientCertificates(t *testing.T) {
	ca := certify(t, "ca", nil)
	caFile, _ := pemFiles(t, ca)
	cert, key := pemFiles(t, certify(t, "server", ca))
	users, err := ReadUsers(fileWith(t, 0o644, "viewer cert:ada\n"))
	if err != nil {
		t.Fatal(err)
	}
	address := overTCP(t, Config{
		Status: func(context.Context) (any, error) { return 1, nil },
		TCP:    TCP{Address: "127.0.0.1:0", CertFile: cert, KeyFile: key, ClientCA: caFile}, Access: &Access{Users: users},
	})
	roots := x509.NewCertPool()
	roots.AddCert(ca.Leaf)
	for _, c := range []struct {
		name string
		cert *tls.Certificate
		host string
		want int // 0 = no answer
	}{
		{"known", certify(t, "ada", ca), "", 200},
		{"known, by the certificate's name", certify(t, "ada", ca), "kconsume.test", 200},
		{"known, by another name", certify(t, "ada", ca), "evil.com", 403},
		{"without a role", certify(t, "eve", ca), "", 403},
		{"of another CA", certify(t, "ada", certify(t, "other", nil)), "", 0},
		{"none", nil, "", 401},
	} {
		conf := &tls.Config{RootCAs: roots}
		if c.cert != nil {
			conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return c.cert, nil }
		}
		transport := &http.Transport{TLSClientConfig: conf, DisableKeepAlives: true}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+"/v1/status", nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.host != "" {
			req.Host = c.host
		}
		res, err := (&http.Client{Transport: transport}).Do(req)
		got := 0
		if err == nil {
			got = res.StatusCode
			res.Body.Close()
		}
		if got != c.want {
			t.Errorf("%s: %d (%v), want %d", c.name, got, err, c.want)
		}
	}
}
