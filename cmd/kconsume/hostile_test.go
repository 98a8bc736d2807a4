package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/kconsume/kconsume/admin"
	"github.com/kconsume/kconsume/plugin"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// hostileText would end a line, colour it, hide and turn it round.
	hostileText = "a\nlevel=ERROR msg=forged\r\x1b[31m\x1b]0;title\x07\u009b\u202eevil\u2066\u200b\ufeff\x7f\x00"
	payload     = "P4YL0AD-of-a-customer"
	dsn         = "S3CRET-of-the-handler"
	adminToken  = "T0KEN-of-the-admin-T0KEN-of-the-admin"
	wrongToken  = "WR0NG-token-of-somebody-WR0NG-token-of"
)

// serveRogue fails in every way there is, with the record's first word as the
// way, and says hostile things. It never says what a record holds: that would be
// its own doing.
func serveRogue() {
	plugin.Serve(plugin.Config{Name: "rogue" + hostileText, Version: "v" + hostileText}, plugin.HandlerFunc(func(ctx context.Context, m *plugin.Message) error {
		way, _, _ := strings.Cut(string(m.Value), " ")
		switch way {
		case "noise":
			fields, err := json.Marshal(map[string]any{
				"@level": "warn", "@message": hostileText, "k" + hostileText: hostileText, "deep": []any{map[string]any{hostileText: hostileText}},
			})
			if err != nil {
				return err
			}
			fmt.Fprintf(os.Stderr, "%s\n%s\n%s\xff\xfe\n", fields, hostileText, m.Key)
			for _, h := range m.Headers {
				fmt.Fprintf(os.Stdout, "%s=%s\n", h.Key, h.Value)
			}
			return nil
		case "perm":
			return plugin.Permanent(errors.New(hostileText))
		case "transient":
			return plugin.Transient(errors.New(hostileText))
		case "panic":
			panic(hostileText)
		case "exit":
			fmt.Fprintf(os.Stderr, "%s\xff", strings.ReplaceAll(hostileText, "\n", ""))
			os.Exit(3)
		case "hang":
			<-ctx.Done()
			return ctx.Err()
		case "json":
			return json.Unmarshal(m.Value, &struct{}{})
		case "emit":
			m.Emit(plugin.Record{Topic: "not-allowed" + hostileText, Key: m.Key, Value: m.Value})
		}
		return nil
	}))
}

// overSocket asks a daemon over its socket.
func overSocket(t *testing.T, socket, path string) string {
	t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	defer transport.CloseIdleConnections()
	res, err := (&http.Client{Transport: transport}).Get("http://localhost" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v\n%s", path, res.Status, err, b)
	}
	return string(b)
}

// unprintable is the first rune of a text that may not be shown on lines.
func unprintable(s string) (r rune, found bool) {
	for i, n := 0, 0; i < len(s); i += n {
		r, n = utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 || r != '\n' && !unicode.IsPrint(r) {
			return r, true
		}
	}
	return 0, false
}

// Whatever records, handlers and callers do and whatever fails: the log is lines
// of printable text, and nothing that is shown holds a payload or a secret.
func TestNothingHostileAndNothingSecretIsShown(t *testing.T) {
	for _, form := range []string{"text", "json"} {
		t.Run(form, func(t *testing.T) { showNothing(t, form) })
	}
}

func showNothing(t *testing.T, form string) {
	cluster, brokers := newBroker(t, kfake.SeedTopics(1, "t"))
	for topic, err := range map[string]*kerr.Error{"t.dlq": kerr.TopicAuthorizationFailed, "t.retry.1s": kerr.MessageTooLarge} {
		cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: err, Count: 3})
	}
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: "t", Err: kerr.UnknownServerError, Count: 2})
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: kerr.UnknownServerError, Count: 2})

	s := newShell(t)
	file := writeFile(t, filepath.Join(s.dir, "k.yaml"), "handler-env: ["+roleEnv+"=rogue, DSN="+dsn+"]\n", 0o600)
	tokens := writeFile(t, filepath.Join(s.dir, "tokens"), "admin ada "+adminToken+"\n", 0o600)
	address, metrics := freePort(t), freePort(t)
	args := []string{"--brokers", brokers, "--group", testGroup, "--topic", "t", "--retry", "1s", "--handler-timeout", "1s", "--oversize", "pointer",
		"--metrics", metrics, "--admin", "tcp:" + address, "--admin-tokens", tokens, "--handler", probe(t)[1]}
	p := s.start(t, append([]string{"--config", file, "--log-level", "debug", "--log-format", form, "run"}, args...)...)

	ways := []string{"ok", "noise", "perm", "transient", "panic", "hang", "json", "emit", "exit", "ok"}
	w := &kafka.Writer{Addr: kafka.TCP(brokers), Topic: "t", RequiredAcks: kafka.RequireAll, BatchTimeout: time.Millisecond, Transport: &kafka.Transport{}}
	for i, way := range ways {
		err := w.WriteMessages(t.Context(), kafka.Message{
			Key: []byte(fmt.Sprint(i, hostileText)), Value: []byte(way + " " + payload),
			Headers: []kafka.Header{{Key: "h" + hostileText, Value: []byte(hostileText)}, {Key: "X-Original-Topic", Value: []byte(hostileText)}, {Key: "X-Error-Message", Value: []byte(hostileText)}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	defer w.Close()

	var log strings.Builder
	reading := make(chan struct{})
	go func() {
		defer close(reading)
		for line := range p.lines {
			log.WriteString(line)
		}
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-reading
		if t.Failed() {
			t.Logf("the log:\n%s", log.String())
		}
	})
	until(t, "all is handled", func() bool {
		// What others answer proves that one of them kills its process.
		if err := w.WriteMessages(t.Context(), kafka.Message{Value: []byte("ok " + payload)}); err != nil {
			t.Fatal(err)
		}
		r := s.run(t, "status", "--group", testGroup, "-o", "json")
		if r.code != 0 {
			return false
		}
		var lag, done int64
		for _, st := range decode[daemonStatus](t, r.stdout).Stages {
			lag += st.Lag
			if st.Stage == "main" && len(st.Partitions) == 1 {
				done = st.Partitions[0].Committed
			}
		}
		return lag == 0 && done > int64(len(ways))
	})

	// Callers that are turned away, and settings that are wrong.
	for _, path := range []string{"/v1/status", "/v1/" + "%1b%5B31m%E2%80%AE%0A", "/v1/status?token=" + wrongToken} {
		if code := call(t, address, path, wrongToken); code != http.StatusUnauthorized && code != http.StatusNotFound {
			t.Errorf("%s: %d", path, code)
		}
	}
	writeFile(t, file, "handler-env: ["+roleEnv+"=rogue, DSN="+dsn+"\n", 0o600)
	writeFile(t, tokens, adminToken+" ada admin\nadmin "+adminToken+"\n", 0o600)
	p.signal(t, syscall.SIGHUP)

	shown := map[string]string{}
	socket := filepath.Join(s.dir, "kconsume", admin.SocketName(testGroup, ""))
	for _, path := range []string{"/v1/status", "/debug/pprof/heap?debug=1", "/debug/pprof/goroutine?debug=2", "/debug/pprof/allocs", "/debug/pprof/"} {
		shown[path] = overSocket(t, socket, path)
	}
	for _, path := range []string{"/metrics", "/livez", "/readyz"} {
		_, shown[path] = get(t, metrics, path)
	}
	for _, command := range [][]string{{"status", "--group", testGroup}, {"dlq", "groups", "t.dlq", "--group", testGroup}} {
		shown[strings.Join(command, " ")] = s.run(t, command...).stdout
	}
	writeFile(t, file, "handler-env: ["+roleEnv+"=rogue, DSN="+dsn+"]\n", 0o600)
	for _, more := range [][]string{nil, {"--origin"}, {"-o", "json"}} {
		r := s.run(t, append(append([]string{"--config", file, "config", "show"}, args...), more...)...)
		if r.code != 0 {
			t.Errorf("config show: %+v", r)
		}
		shown["config show "+strings.Join(more, " ")] = r.stdout + r.stderr
	}
	shown["a wrong topic"] = s.run(t, "topics", "plan", "--brokers", brokers, "--topic", hostileText[:len(hostileText)-1]).stderr

	p.signal(t, syscall.SIGQUIT) // dies as it would of a panic, with all its goroutines
	p.code()
	<-reading
	shown["log"] = log.String()
	at := strings.Index(shown["log"], "SIGQUIT: quit")
	if at < 0 {
		t.Fatal("it did not die of a panic")
	}

	for what, text := range shown {
		for _, secret := range []string{payload, dsn, adminToken, wrongToken} {
			if strings.Contains(text, secret) {
				i := strings.Index(text, secret)
				t.Errorf("%s holds %s: %q", what, secret, text[max(0, i-200):min(len(text), i+100)])
			}
		}
		if what == "log" {
			text = text[:at]
		}
		if strings.HasPrefix(what, "/debug") {
			continue // Go's own form
		}
		if r, found := unprintable(text); found {
			t.Errorf("%s holds %U: %q", what, r, text)
		}
		if strings.Contains("\n"+text, "\nlevel=ERROR msg=forged") {
			t.Errorf("%s has a line that somebody else wrote: %q", what, text)
		}
	}
	lines := strings.Split(strings.TrimSuffix(shown["log"][:at], "\n"), "\n")
	for _, l := range lines {
		if form == "json" && !json.Valid([]byte(l)) || form == "text" && !strings.HasPrefix(l, "time=") {
			t.Errorf("a line that is none of the log: %q", l)
		}
	}
	for _, want := range []string{"forged", "cannot reload the settings", "cannot reload who may call", "admin request denied", "handler process ended", "cannot write to t.dlq", "is too large"} {
		if !strings.Contains(shown["log"], want) {
			t.Errorf("the log does not tell of %q: that way was not gone", want)
		}
	}
}
