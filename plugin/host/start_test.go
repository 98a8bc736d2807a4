package host

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kconsume/kconsume/plugin/internal/wire"
)

func TestStartTellsWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	write(t, text, "just text\n", 0o755)
	orphan := filepath.Join(dir, "orphan")
	write(t, orphan, "#!/no/such/interpreter\n", 0o755)
	self := os.Args[0]
	for _, c := range []struct {
		name, path, mode string
		timeout          time.Duration
		errs             []string
	}{
		{"true", "/bin/true", "", 0, []string{"start handler /bin/true: it exited before its handshake", "exit status 0"}},
		{"cat", "/bin/cat", "", 0, []string{"it exited before its handshake"}},
		{"text", text, "", 0, []string{"neither a program for this machine nor a script"}},
		{"no interpreter", orphan, "", 0, []string{"first line", "does not exist"}},
		{"directory", dir, "", 0, []string{"is a directory"}},
		{"missing", filepath.Join(dir, "missing"), "", 0, []string{"no such file"}},
		{"no path", "", "", 0, []string{"no path given"}},
		{"exits", self, "exits", 0, []string{"exit status 7: cannot read the configuration"}},
		{"mute", self, "mute", 300 * time.Millisecond, []string{"no handshake to stdout within 300ms"}},
		{"old", self, "old", 0, []string{"speaks version 7 of the handler contract"}},
		{"deaf", self, "deaf", time.Second, []string{"within 1s"}},
		{"silent", self, "silent", 5 * time.Second, []string{"said no Hello within 5s"}},
		{"no hello", self, "no-hello", 0, []string{"first frame is not a Hello"}},
		{"stranger", self, "stranger", 0, []string{"does not serve " + wire.ServiceName}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // some wait for a timeout
			cfg := config(t, c.mode)
			cfg.Path = c.path
			if c.timeout > 0 {
				cfg.StartTimeout = c.timeout
			}
			h, err := Start(t.Context(), cfg)
			if err == nil {
				h.Stop(t.Context())
			}
			wantError(t, err, c.errs)
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("error of several lines: %q", err)
			}
		})
	}
}

func TestStartIsGivenUp(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the user changed his mind"))
	_, err := Start(ctx, config(t, "mute"))
	wantError(t, err, []string{"the user changed his mind"})
}

func TestPinIsOfWhatIsExecuted(t *testing.T) {
	b, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	cfg := config(t, "serve")
	cfg.SHA256 = fmt.Sprintf("%x", sha256.Sum256(b))
	e := start(t, cfg)
	e.send(1, "ok")
	e.ack(1, 2)

	script := filepath.Join(t.TempDir(), "script")
	write(t, script, "#!/bin/sh\nexec "+os.Args[0]+"\n", 0o755)
	b, err = os.ReadFile(script)
	if err != nil {
		t.Fatal(err)
	}
	cfg = config(t, "serve")
	cfg.Path, cfg.SHA256 = script, fmt.Sprintf("%x", sha256.Sum256(b))
	hello, err := Inspect(t.Context(), cfg)
	if err != nil || hello.Name != "probe" {
		t.Errorf("a pinned script says %+v, %v", hello, err)
	}
	cfg.SHA256 = strings.Repeat("0", 64)
	_, err = Inspect(t.Context(), cfg)
	wantError(t, err, []string{"not the pinned"})
}

func TestMemoryIsTakenFromTheHandlerFirst(t *testing.T) {
	score := func(pid string) int {
		b, err := os.ReadFile("/proc/" + pid + "/oom_score_adj")
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(b)))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	e := start(t, config(t, "serve"))
	own := score("self")
	if got, want := score(strconv.Itoa(e.Status().PID)), min(oomMost, own+oomMargin); got != want {
		t.Errorf("score %d of the handler, %d our own, want %d", got, own, want)
	}
}

func TestInspect(t *testing.T) {
	hello, err := Inspect(t.Context(), config(t, "serve"))
	if err != nil {
		t.Fatal(err)
	}
	if hello.Name != "probe" || hello.Version != "1.0" || !slices.Equal(hello.Topics, []string{"t"}) || hello.SDK == "" {
		t.Errorf("Hello %+v", hello)
	}
}

func TestEnvironmentHoldsNoSecret(t *testing.T) {
	t.Setenv("KCONSUME_SASL_PASSWORD_FILE", "/secret-file")
	t.Setenv("KCONSUME_SASL_PASSWORD", "secret-word")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret-key")
	t.Setenv("PLUGIN_CLIENT_CERT", "secret-certificate")
	t.Setenv("TZ", "Europe/Vienna")
	t.Setenv("LANG", "")
	cfg := config(t, "serve")
	cfg.Env = append(cfg.Env, "DSN=h1:1,h2:2", "HOME=/elsewhere")
	e := start(t, cfg)
	e.send(1, "environment")
	env := strings.Split(e.verdict(1).Verdict.Message, "\n")
	if strings.Contains(strings.Join(env, " "), "secret") {
		t.Errorf("the handler sees %q", env)
	}
	for _, want := range []string{"TZ=Europe/Vienna", "LANG=C.UTF-8", "DSN=h1:1,h2:2", "HOME=/elsewhere", "PATH=" + os.Getenv("PATH")} {
		if !slices.Contains(env, want) {
			t.Errorf("the handler does not see %s: %q", want, env)
		}
	}
	for _, v := range env {
		name, _, _ := strings.Cut(v, "=")
		known := slices.Contains([]string{"PATH", "HOME", "LANG", "TZ", "DSN", "GORACE", helperEnv, wire.CookieKey}, name) || strings.HasPrefix(name, "PLUGIN_")
		if !known {
			t.Errorf("the handler sees %s", v)
		}
	}
}

func TestSocketDirectory(t *testing.T) {
	dir := t.TempDir()
	open := filepath.Join(dir, "open")
	if err := os.Mkdir(open, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "file")
	write(t, file, "", 0o700)
	for _, c := range []struct {
		name, dir string
		errs      []string
	}{
		{"none", "", []string{"no absolute path"}},
		{"open to others", open, []string{"others may enter it (mode 0755)"}},
		{"a file", file, []string{"not a directory"}},
		{"too long", "/tmp/" + strings.Repeat("k", 70), []string{"6 bytes too long"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Config{Path: "/bin/true", SocketDir: c.dir}.complete()
			wantError(t, err, c.errs)
		})
	}
	made := filepath.Join(sockets(t), "a")
	if _, err := (Config{Path: "/bin/true", SocketDir: made}).complete(); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(made); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("made %v, %v", info, err)
	}
	os.Remove(made)
}
