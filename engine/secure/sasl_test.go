package secure

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestBearerFraming(t *testing.T) {
	s, first, err := bearer{"abc.def"}.Start(t.Context())
	if err != nil || string(first) != "n,,\x01auth=Bearer abc.def\x01\x01" {
		t.Fatalf("%q, %v", first, err)
	}
	if done, _, err := s.Next(t.Context(), nil); !done || err != nil {
		t.Errorf("an empty answer is success: %v, %v", done, err)
	}
	s, _, _ = bearer{"abc"}.Start(t.Context())
	done, next, err := s.Next(t.Context(), []byte(`{"status":"invalid_token"}`))
	if done || err != nil || !bytes.Equal(next, []byte{1}) {
		t.Errorf("a refusal is answered with one byte: %v, %q, %v", done, next, err)
	}
	if _, _, err := s.Next(t.Context(), []byte("more")); err == nil {
		t.Error("a broker that goes on after a refusal is believed")
	}
}

func TestTokenForm(t *testing.T) {
	for token, ok := range map[string]bool{
		"eyJhbGciOiJub25lIn0.eyJzdWIiOiJ4In0.": true, "a-b_c~d+e/f==": true, "": false, "two words": false, "a\x01b": false, "=": false, "a=b": false,
		strings.Repeat("x", mostSecret+1): false,
	} {
		if _, err := newBearer(token, "here"); (err == nil) != ok {
			t.Errorf("%.20q: %v", token, err)
		} else if err != nil && token != "" && token != "=" && strings.Contains(err.Error(), token) {
			t.Errorf("the token is in %v", err)
		}
	}
}

// A broker that asks for too little or too much work is refused before any is done.
func TestScramIterations(t *testing.T) {
	for _, m := range []Mechanism{ScramSHA256, ScramSHA512} {
		for n, ok := range map[int]bool{1: false, 4095: false, 4096: true, 16384: true, mostIterations + 1: false} {
			mech, err := newPassword(Settings{Mechanism: m, Username: "u"}, "p")
			if err != nil {
				t.Fatal(err)
			}
			s, first, err := mech.Start(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			nonce := string(first[bytes.LastIndex(first, []byte("r="))+2:])
			challenge := fmt.Sprintf("r=%sx,s=%s,i=%d", nonce, base64.StdEncoding.EncodeToString([]byte("salt")), n)
			if _, _, err := s.Next(t.Context(), []byte(challenge)); (err == nil) != ok {
				t.Errorf("%s with %d iterations: %v", m, n, err)
			}
		}
	}
	if n := iterationsOf([]byte("r=x,s=y")); n != -1 {
		t.Errorf("no number is %d", n)
	}
}

// What the preparation of a password says about it is not repeated.
func TestUnpreparedPassword(t *testing.T) {
	_, err := newPassword(Settings{Mechanism: ScramSHA512, Username: "u", PasswordFile: "p"}, "hunter2\u0001")
	if KindOf(err) != Setting || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("%v", err)
	}
}

// A broker's words are shown without what we sent it, and on one line.
func TestRefusalHidesTheSecret(t *testing.T) {
	b := &broker{mechanisms: []string{"PLAIN"}, accepts: func([]byte) bool { return false }}
	d := New(Config{Settings: Settings{Mechanism: Plain, Username: "u", PasswordFile: passwordFile(t, "hunter2")}})
	_, err := dial(t, d, b.start(t))
	if KindOf(err) != Denied || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "***") || strings.ContainsAny(err.Error(), "\x00\n") {
		t.Errorf("%q", err)
	}
	// One that is cut off in the middle of the secret.
	b.accepts, b.prefix = func([]byte) bool { return false }, strings.Repeat("x", mostWords-len("Authentication failed: you sent  u hun"))
	if _, err := dial(t, d, b.listener.Addr().String()); KindOf(err) != Denied || strings.Contains(err.Error(), "hun") {
		t.Errorf("%q", err)
	}
	for _, shown := range []string{fmt.Sprintf("%v %+v", d.password, d.password), fmt.Sprintf("%#v", d.password), fmt.Sprintf("%v", d.password.value), fmt.Sprintf("%#v", d.password.value)} {
		if strings.Contains(shown, "hunter2") {
			t.Errorf("the secret is in %s", shown)
		}
	}
}

func TestWords(t *testing.T) {
	for in, want := range map[string]string{
		"fine": "fine", "two\nlines": "two lines", "\x1b[31mred": "[31mred", "\u202eabc": "abc", "a\xffb": "a?b",
		strings.Repeat("ä", 300): strings.Repeat("ä", mostWords) + "…",
	} {
		if got := words(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestPrincipal(t *testing.T) {
	for _, c := range []struct {
		s    Settings
		want string
	}{
		{Settings{}, "User:ANONYMOUS"},
		{Settings{Mechanism: ScramSHA256, Username: "u"}, "User:u"},
		{Settings{Mechanism: OAuthBearer, TokenFile: "t"}, ""},
	} {
		if got := New(Config{Settings: c.s}).Principal(); got != c.want {
			t.Errorf("%+v: %q, want %q", c.s, got, c.want)
		}
	}
	path := passwordFile(t, unsigned(t, map[string]any{"sub": "billing", "exp": time.Now().Add(time.Hour).Unix()}))
	d := New(Config{Settings: Settings{Mechanism: OAuthBearer, TokenFile: path}})
	if _, err := dial(t, d, (&broker{mechanisms: []string{"OAUTHBEARER"}}).start(t)); err != nil {
		t.Fatal(err)
	}
	if got := d.Principal(); got != "User:billing" {
		t.Errorf("%q", got)
	}
}
