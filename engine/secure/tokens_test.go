package secure

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func unsigned(t *testing.T, claims map[string]any) string {
	t.Helper()
	body, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	enc := base64.RawURLEncoding
	return enc.EncodeToString([]byte(`{"alg":"none"}`)) + "." + enc.EncodeToString(body) + ".x"
}

// grant is tokens from an endpoint, with the time in a test's hands.
type grant struct {
	*tokens
	asked atomic.Int64
	at    time.Time
	log   strings.Builder
}

func newGrant(t *testing.T, answer http.HandlerFunc) *grant {
	t.Helper()
	g := &grant{at: time.Now()}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.asked.Add(1)
		answer(w, r)
	}))
	t.Cleanup(server.Close)
	g.tokens = newTokens(Settings{
		Mechanism: OAuthBearer, TokenURL: server.URL + "/token", ClientID: "kconsume", ClientSecretFile: passwordFile(t, "hunter2\n"), Scope: "kafka read",
	}, slog.New(slog.NewTextHandler(&g.log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	g.now = func() time.Time { return g.at }
	return g
}

// give answers with a token of a life in seconds, 0 = it is not said.
func give(token string, life int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if life == 0 {
			fmt.Fprintf(w, `{"access_token":%q,"token_type":"Bearer"}`, token)
			return
		}
		fmt.Fprintf(w, `{"access_token":%q,"token_type":"Bearer","expires_in":%d}`, token, life)
	}
}

func TestGrantSendsWhatItShould(t *testing.T) {
	g := newGrant(t, func(w http.ResponseWriter, r *http.Request) {
		id, secret, _ := r.BasicAuth()
		if r.Method != http.MethodPost || id != "kconsume" || secret != "hunter2" || r.PostFormValue("grant_type") != "client_credentials" || r.PostFormValue("scope") != "kafka read" {
			t.Errorf("%s, %q, %q, %v", r.Method, id, secret, r.PostForm)
		}
		give("abc", 3600)(w, r)
	})
	creds, err := g.get(t.Context(), tokenShare)
	if err != nil || creds.secret != "abc" || creds.Name() != "OAUTHBEARER" {
		t.Fatalf("%v, %v", creds, err)
	}
}

// One token serves every connection until most of its life is over.
func TestTokenIsReused(t *testing.T) {
	n := 0
	g := newGrant(t, func(w http.ResponseWriter, r *http.Request) { n++; give(fmt.Sprint("token", n), 1000)(w, r) })
	expect := func(after time.Duration, share float64, want string) {
		t.Helper()
		g.at = g.at.Add(after)
		if creds, err := g.get(t.Context(), share); err != nil || creds.secret != want {
			t.Fatalf("%v, %v, want %s", creds, err, want)
		}
	}
	expect(0, tokenShare, "token1")
	expect(400*time.Second, tokenShare, "token1")
	expect(0, renewalShare, "token1")
	expect(150*time.Second, tokenShare, "token1")
	expect(0, renewalShare, "token2") // a session is renewed with one that outlives it
	g.issuedNow()
	expect(700*time.Second, tokenShare, "token2")
	expect(150*time.Second, tokenShare, "token3")
	g.issuedNow()
	g.drop(&credentials{})
	expect(0, tokenShare, "token3")
	g.drop(g.creds)
	expect(0, tokenShare, "token4")
}

// issuedNow takes the present token for new by the test's clock: the library
// reckons its end by the true one.
func (g *grant) issuedNow() { g.issued, g.expires = g.at, g.at.Add(1000*time.Second) }

// A token that a broker refuses is not sent again.
func TestRefusedTokenIsForgotten(t *testing.T) {
	n := 0
	g := newGrant(t, func(w http.ResponseWriter, r *http.Request) { n++; give(fmt.Sprint("token", n), 1000)(w, r) })
	b := &broker{mechanisms: []string{"OAUTHBEARER"}, accepts: func(step []byte) bool { return !strings.Contains(string(step), "token1") }}
	address := b.start(t)
	d := New(Config{Settings: g.settings})
	if _, err := dial(t, d, address); KindOf(err) != Denied || strings.Contains(err.Error(), "token1") {
		t.Fatalf("%v", err)
	}
	if _, err := dial(t, d, address); err != nil {
		t.Fatal(err)
	}
}

func TestTokenWithoutALife(t *testing.T) {
	g := newGrant(t, give("opaque", 0))
	if _, err := g.get(t.Context(), tokenShare); err != nil || g.expires.Sub(g.at) != tokenLife {
		t.Errorf("%v, %v", err, g.expires.Sub(g.at))
	}
	end := time.Now().Add(time.Minute).Truncate(time.Second)
	g = newGrant(t, give(unsigned(t, map[string]any{"exp": end.Unix()}), 3600))
	if _, err := g.get(t.Context(), tokenShare); err != nil || !g.expires.Equal(end) {
		t.Errorf("%v, %v, want what the token itself says, %v", err, g.expires, end)
	}
	for _, exp := range []float64{-1, 0, 1e300} {
		if end := (claims{Expires: exp}).end(); !end.IsZero() {
			t.Errorf("%v ends at %v", exp, end)
		}
	}
}

// An endpoint that fails is asked again, less and less often; until a token's end
// its failure is nobody's trouble.
func TestEndpointThatFails(t *testing.T) {
	down := false
	g := newGrant(t, func(w http.ResponseWriter, r *http.Request) {
		if down {
			http.Error(w, "hunter2", http.StatusServiceUnavailable)
			return
		}
		give("token", 1000)(w, r)
	})
	if _, err := g.get(t.Context(), tokenShare); err != nil {
		t.Fatal(err)
	}
	down = true
	g.at = g.at.Add(900 * time.Second)
	for range 10 {
		if creds, err := g.get(t.Context(), tokenShare); err != nil || creds.secret != "token" {
			t.Fatalf("the token is good for 100 s still: %v", err)
		}
	}
	if n := g.asked.Load(); n != 3 { // both ways to name the client, once
		t.Errorf("asked %d times", n)
	}
	g.at = g.at.Add(200 * time.Second)
	_, err := g.get(t.Context(), tokenShare)
	if KindOf(err) != Unavailable || !strings.Contains(err.Error(), "it gives no token now (status 503)") {
		t.Errorf("%v", err)
	}
	before := g.asked.Load()
	if _, again := g.get(t.Context(), tokenShare); again == nil || g.asked.Load() != before {
		t.Error("asked again at once")
	}
	down = false
	g.at = g.at.Add(tokenWaitMax)
	if _, err := g.get(t.Context(), tokenShare); err != nil {
		t.Error(err)
	}
	if strings.Contains(g.log.String(), "hunter2") {
		t.Errorf("the secret is in the log: %s", g.log.String())
	}
}

// What an endpoint answers is bounded, and never repeated: it may hold what it
// was sent.
func TestHostileEndpoints(t *testing.T) {
	answer := func(status int, kind, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}
	}
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("a redirect was followed, with %v", r.Header) }))
	defer elsewhere.Close()
	for _, c := range []struct {
		name   string
		answer http.HandlerFunc
		kind   Kind
		says   string
	}{
		{"no such client", answer(401, "application/json", `{"error":"invalid_client","error_description":"hunter2 is wrong"}`), Denied, "refuses client kconsume (status 401, invalid_client): check --sasl-oauth-client-id, and the secret in "},
		{"no such scope", answer(400, "application/json", `{"error":"invalid_scope"}`), Denied, "check --sasl-oauth-scope"},
		{"error that is no word", answer(400, "application/json", `{"error":"hunter2 "}`), Denied, "(status 400)"},
		{"error with success", answer(200, "application/json", `{"error":"unauthorized_client"}`), Denied, "unauthorized_client"},
		{"not there", answer(404, "text/html", "hunter2"), Setting, "there is none at that path (status 404): check --sasl-oauth-token-url"},
		{"busy", answer(429, "text/plain", "hunter2"), Unavailable, "it gives no token now (status 429)"},
		{"not JSON", answer(200, "application/json", "<html>hunter2"), Unavailable, "its answer holds no token: check --sasl-oauth-token-url"},
		{"no token", answer(200, "application/json", `{"token":"hunter2"}`), Unavailable, "its answer holds no token"},
		{"another shape", answer(200, "application/json", `["hunter2"]`), Unavailable, "its answer holds no token"},
		{"a token that is none", answer(200, "application/json", `{"access_token":"hunter2 \u0001","token_type":"Bearer"}`), Unavailable, "is no bearer token"},
		{"a huge answer", answer(200, "application/json", `{"access_token":"`+strings.Repeat("x", 2<<20)+`"}`), Unavailable, "its answer holds no token"},
		{"a huge token", answer(200, "application/json", `{"access_token":"`+strings.Repeat("x", mostSecret+1)+`"}`), Unavailable, "is no bearer token"},
		{"redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		}, Setting, "it points to another address (status 307): give that with --sasl-oauth-token-url"},
		{"hangs up", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, Unavailable, "check --sasl-oauth-token-url"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newGrant(t, c.answer)
			_, err := g.get(t.Context(), tokenShare)
			if KindOf(err) != c.kind || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "\n") || len(err.Error()) > 400 {
				t.Errorf("%v (%s), want %q (%s)", err, KindOf(err), c.says, c.kind)
			}
			if full := fmt.Sprintf("%+v %#v %v", err, err, g.log.String()); strings.Contains(full, "hunter2") {
				t.Errorf("the secret is in %s", full)
			}
		})
	}
}

// Whoever waits for a slow endpoint is let go when its own time is over.
func TestSlowEndpoint(t *testing.T) {
	block := make(chan struct{})
	asked := make(chan struct{}, 1)
	g := newGrant(t, func(http.ResponseWriter, *http.Request) { asked <- struct{}{}; <-block })
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer close(block)
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error, 1)
	waiting.Go(func() {
		_, err := g.get(ctx, tokenShare)
		first <- err
	})
	<-asked
	done, over := context.WithCancel(t.Context())
	over()
	if _, err := g.get(done, tokenShare); KindOf(err) != Unavailable {
		t.Errorf("who waits behind the request: %v", err)
	}
	cancel()
	if err := <-first; KindOf(err) != Unavailable {
		t.Errorf("who asked: %v", err)
	}
}
