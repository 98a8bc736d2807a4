package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kconsume/kconsume/plugin"
	"github.com/twmb/franz-go/pkg/kfake"
)

// roleEnv makes the test binary a handler; reportEnv names the file to which
// that writes how it was started, and in which it says what it handles.
const (
	roleEnv   = "KCONSUME_TEST_ROLE"
	reportEnv = "KCONSUME_TEST_REPORT"
)

func TestMain(m *testing.M) {
	switch os.Getenv(roleEnv) {
	case "handler":
		serveHandler()
	case "rogue":
		serveRogue()
	}
	os.Exit(withBinary(m))
}

// binary is the program under test. It is set before the tests run.
var binary string

func withBinary(m *testing.M) int {
	dir, err := os.MkdirTemp("", "kc")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "kconsume")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		fmt.Printf("%s%v\n", out, err)
		return 1
	}
	return m.Run()
}

// started is what a handler process was given.
type started struct{ Args, Env []string }

// serveHandler does what a record's value says: "ok", or "hang" until the
// process ends.
func serveHandler() {
	note := func(v any) {
		f, err := os.OpenFile(os.Getenv(reportEnv), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return // a test that does not ask for a report
		}
		defer f.Close()
		if err := json.NewEncoder(f).Encode(v); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	note(started{os.Args[1:], os.Environ()})
	plugin.Serve(plugin.Config{Name: "probe", Version: "v7"}, plugin.HandlerFunc(func(_ context.Context, m *plugin.Message) error {
		fmt.Fprintln(os.Stderr, "handling", string(m.Value))
		if string(m.Value) == "hang" {
			select {}
		}
		return nil
	}))
}

// probe are the flags that make the test binary the handler.
func probe(t *testing.T) []string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return []string{"--handler", exe, "--handler-env", roleEnv + "=handler"}
}

// shell is an environment to run the program in: nothing of ours but PATH, and
// directories of its own for what runs and for what stays.
type shell struct {
	env []string
	dir string
}

func newShell(t *testing.T, env ...string) *shell {
	t.Helper()
	// Not t.TempDir: the paths of sockets are bounded.
	dir, err := os.MkdirTemp("", "kc")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	base := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "XDG_RUNTIME_DIR=" + dir, "STATE_DIRECTORY=" + filepath.Join(dir, "state")}
	return &shell{append(base, env...), dir}
}

func (s *shell) command(args ...string) *exec.Cmd {
	cmd := exec.Command(binary, args...)
	cmd.Env, cmd.Dir = s.env, s.dir
	return cmd
}

// result is what a command did.
type result struct {
	code           int
	stdout, stderr string
}

func (s *shell) run(t *testing.T, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := s.command(args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		t.Fatal(err)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// process is a daemon that runs until the test ends.
type process struct {
	cmd    *exec.Cmd
	lines  chan string // its log; closed at its end
	exited chan struct{}
}

func (s *shell) start(t *testing.T, args ...string) *process {
	t.Helper()
	cmd := s.command(args...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{cmd, make(chan string, 1000), make(chan struct{})}
	go func() {
		defer close(p.exited)
		r := bufio.NewReader(stderr)
		for {
			line, err := r.ReadString('\n')
			if line != "" {
				p.lines <- line
			}
			if err != nil {
				break
			}
		}
		close(p.lines)
		_ = cmd.Wait() // its code is looked at
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		for line := range p.lines {
			if t.Failed() {
				t.Log(strings.TrimSpace(line))
			}
		}
		<-p.exited
	})
	return p
}

// await reads the log up to a line with a text in it.
func (p *process) await(t *testing.T, text string) string {
	t.Helper()
	var all strings.Builder
	for line := range p.lines {
		all.WriteString(line)
		if strings.Contains(line, text) {
			return line
		}
	}
	t.Fatalf("no %q in\n%s", text, all.String())
	return ""
}

func (p *process) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// code waits for the end.
func (p *process) code() int {
	<-p.exited
	return p.cmd.ProcessState.ExitCode()
}

func newBroker(t *testing.T, opts ...kfake.Opt) (*kfake.Cluster, string) {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, strings.Join(c.ListenAddrs(), ",")
}

func writeFile(t *testing.T, path, text string, mode os.FileMode) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func decode[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	d := json.NewDecoder(strings.NewReader(text))
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		t.Fatalf("more than one value in %s", text)
	}
	return v
}
