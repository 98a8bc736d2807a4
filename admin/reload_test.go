package admin

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kconsume/kconsume/admin/dlq"
)

// Each file is read again on its own: what is wrong stays as it was.
func TestAccessReload(t *testing.T) {
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tokensFile, usersFile := fileWith(t, 0o600, "admin ada "+viewerToken+"\n"), fileWith(t, 0o600, "viewer uid:4711\n")
	a := &Access{}
	if err := a.Reload(); err != nil {
		t.Errorf("without files: %v", err)
	}
	var err error
	if a.Tokens, err = ReadTokens(tokensFile); err != nil {
		t.Fatal(err)
	}
	if a.Users, err = ReadUsers(usersFile); err != nil {
		t.Fatal(err)
	}
	role := func() dlq.Role { p, _ := a.peer(Peer{UID: 4711, GID: 4711}); return p.Role }

	write(tokensFile, "nonsense")
	write(usersFile, "operator uid:4711\n")
	if err := a.Reload(); err == nil || !strings.HasPrefix(err.Error(), "--admin-tokens") || role() != dlq.RoleOperator {
		t.Errorf("tokens that are wrong: %v; the user is %q", err, role())
	}
	write(usersFile, "nonsense")
	if err := a.Reload(); err == nil || strings.Count(err.Error(), "\n") != 1 || role() != dlq.RoleOperator {
		t.Errorf("both wrong: %v; the user is %q", err, role())
	}
	if _, err := a.token(viewerToken); err != nil {
		t.Errorf("the token of before: %v", err)
	}
	write(tokensFile, "admin bob "+operatorToken+"\n")
	write(usersFile, "admin uid:4711\n")
	if err := a.Reload(); err != nil || role() != dlq.RoleAdmin {
		t.Errorf("both right: %v; the user is %q", err, role())
	}
	if _, err := a.token(viewerToken); err == nil {
		t.Error("a token that is gone lets in")
	}
}

// A renewed certificate and another authority are taken up by the next
// connection; files that are wrong leave what was before.
func TestCertificatesAreReadAgain(t *testing.T) {
	first, second := certify(t, "first ca", nil), certify(t, "second ca", nil)
	roots := x509.NewCertPool()
	roots.AddCert(first.Leaf)
	roots.AddCert(second.Leaf)
	cert, key := pemFiles(t, certify(t, "first server", first))
	caFile, _ := pemFiles(t, first)
	users, err := ReadUsers(fileWith(t, 0o644, "viewer cert:ada\n"))
	if err != nil {
		t.Fatal(err)
	}
	conf := TCP{Address: "127.0.0.1:0", CertFile: cert, KeyFile: key, ClientCA: caFile}
	address := overTCP(t, Config{Status: func(context.Context) (any, error) { return 1, nil }, TCP: conf, Access: &Access{Users: users}})
	// ask is who answers and how, to a client of an authority.
	ask := func(ca *tls.Certificate) (server string, status int) {
		t.Helper()
		client := certify(t, "ada", ca)
		transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{
			RootCAs: roots, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return client, nil },
		}}
		res, err := (&http.Client{Transport: transport}).Get("https://" + address + "/v1/status")
		if err != nil {
			return "", 0
		}
		defer res.Body.Close()
		return res.TLS.PeerCertificates[0].Subject.CommonName, res.StatusCode
	}
	check := func(when, server string, ofFirst, ofSecond int) {
		t.Helper()
		got, one := ask(first)
		other, two := ask(second)
		if got+other != server || one != ofFirst || two != ofSecond {
			t.Errorf("%s: %q and %q answer with %d and %d, want %q, %d and %d", when, got, other, one, two, server, ofFirst, ofSecond)
		}
	}
	check("at first", "first server", 200, 0)
	newCert, newKey := pemFiles(t, certify(t, "second server", second))
	newCA, _ := pemFiles(t, second)
	for to, from := range map[string]string{cert: newCert, key: newKey, caFile: newCA} {
		b, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := conf.Check(); err != nil {
		t.Error(err)
	}
	check("renewed", "second server", 0, 200)
	for _, file := range []string{caFile, key} {
		if err := os.WriteFile(file, []byte("nonsense"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := conf.Check(); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("of nonsense in %s: %v", file, err)
		}
		check("with nonsense", "second server", 0, 200)
	}
}

// Profiles are for admins, over the socket alone, and without the command line.
func TestProfiles(t *testing.T) {
	path := filepath.Join(socketDir(t), "s")
	serve(t, path, func(context.Context) (any, error) { return 1, nil })
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}
	tcp := overTCP(t, Config{
		Status: func(context.Context) (any, error) { return 1, nil }, TCP: TCP{Address: "127.0.0.1:0"}, Access: &Access{Tokens: tokens(t)},
	})
	for _, c := range []struct {
		client *http.Client
		url    string
		want   int
	}{
		{&http.Client{Transport: transport}, "http://localhost/debug/pprof/heap", 200},
		{&http.Client{Transport: transport}, "http://localhost/debug/pprof/goroutine?debug=1", 200},
		{&http.Client{Transport: transport}, "http://localhost/debug/pprof/cmdline", 404},
		{&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, "http://" + tcp + "/debug/pprof/heap", 404},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+operatorToken)
		res, err := c.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != c.want {
			t.Errorf("%s: %d, want %d", c.url, res.StatusCode, c.want)
		}
	}
}
