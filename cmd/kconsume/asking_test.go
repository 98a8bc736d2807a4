package main

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kconsume/kconsume/admin"
)

// A daemon elsewhere is asked over TLS with a token, which goes there and
// nowhere else, and is never printed.
func TestAskElsewhere(t *testing.T) {
	const token = "b2xnYS1pcy1hbi1vcGVyYXRvci0wMTIz"
	s := newShell(t)
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("%s came with the token %q", r.URL, r.Header.Get("Authorization"))
	}))
	defer elsewhere.Close()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != "Bearer "+token:
			answer(w, http.StatusUnauthorized, admin.Problem{Title: "Unauthorized", Status: http.StatusUnauthorized, Detail: "the token is not known"})
		case r.URL.Path == "/v1/dlq":
			answer(w, http.StatusOK, map[string]any{"dlqs": []any{}})
		case r.URL.Path == "/v1/jobs":
			http.Redirect(w, r, elsewhere.URL, http.StatusFound)
		default:
			http.Error(w, "who are you?", http.StatusNotFound)
		}
	}))
	defer server.Close()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(s.dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ca := write("ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})), 0o644)
	good, wrong := write("good", token+"\n", 0o640), write("wrong", "x"+token, 0o600)
	list := []string{"dlq", "list"}
	for _, c := range []struct {
		name   string
		args   []string
		code   int
		stderr string
	}{
		{"right", append(list, "--admin", server.URL, "--ca-file", ca, "--token-file", good), 0, ""},
		{"wrong token", append(list, "--admin", server.URL, "--ca-file", ca, "--token-file", wrong), 77, "the token is not known"},
		{"no token", append(list, "--admin", server.URL, "--ca-file", ca), 77, "the token is not known"},
		{"unknown authority", append(list, "--admin", server.URL, "--token-file", good), 77, "--ca-file"},
		{"sent on", []string{"jobs", "list", "--admin", server.URL, "--ca-file", ca, "--token-file", good}, 1, "302"},
		{"another server", []string{"status", "--admin", server.URL, "--ca-file", ca, "--token-file", good}, 1, "is it a daemon's admin API?"},
		{"nobody there", append(list, "--admin", "https://127.0.0.1:1", "--token-file", good), 69, "no daemon answers"},
		{"in the clear", append(list, "--admin", "http://192.0.2.1:80", "--token-file", good), 78, "use https"},
		{"a path", append(list, "--admin", server.URL+"/v1"), 78, "and nothing else"},
		{"token for all to read", append(list, "--admin", server.URL, "--token-file", write("loose", token, 0o644)), 78, "chmod 0640"},
		{"two tokens", append(list, "--admin", server.URL, "--token-file", write("two", token+"\n"+token, 0o600)), 78, "nothing else"},
		{"no authority in the file", append(list, "--admin", server.URL, "--ca-file", good), 78, "no certificate"},
		{"half a certificate", append(list, "--admin", server.URL, "--client-cert", ca), 78, "give both"},
		{"to listen there", []string{"validate", "--brokers", "b:1", "--group", "g", "--topic", "t", "--handler", "./h", "--admin", server.URL}, 78, "this one listens on"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := s.run(t, c.args...)
			if r.code != c.code || !strings.Contains(r.stderr, c.stderr) {
				t.Errorf("%+v, want %d and %q", r, c.code, c.stderr)
			}
			if strings.Contains(r.stdout+r.stderr, token) {
				t.Errorf("the token is printed: %+v", r)
			}
		})
	}
}
