package secure_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

// tokenLife outlives a test.
const tokenLife = time.Hour

// unsecuredToken is an unsigned JWT, which Kafka's own validator for trials takes.
func unsecuredToken(subject string, life time.Duration) string {
	now := time.Now()
	claims, err := json.Marshal(map[string]any{"sub": subject, "iat": now.Unix(), "exp": now.Add(life).Unix()})
	if err != nil {
		panic(err)
	}
	enc := base64.RawURLEncoding
	return enc.EncodeToString([]byte(`{"alg":"none"}`)) + "." + enc.EncodeToString(claims) + "."
}

// endpoint gives tokens to one client and counts them.
type endpoint struct {
	*httptest.Server
	given, refused atomic.Int64
}

func tokenEndpoint(t *testing.T, subject string, life time.Duration) *endpoint {
	t.Helper()
	e := &endpoint{}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			http.NotFound(w, r)
			return
		}
		id, secret, _ := r.BasicAuth()
		if id != "kconsume" || secret != clientSecret || r.PostFormValue("grant_type") != "client_credentials" {
			e.refused.Add(1)
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprintf(w, `{"error":"invalid_client","error_description":"you sent %s"}`, secret)
			return
		}
		e.given.Add(1)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"access_token":%q,"token_type":"Bearer","expires_in":%d}`, unsecuredToken(subject, life), int(life.Seconds()))
	}))
	t.Cleanup(e.Close)
	return e
}
