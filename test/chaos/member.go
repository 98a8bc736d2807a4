package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Flags of every member. The session timeout is the least that a broker takes.
const (
	group          = "chaos"
	sessionTimeout = 6 * time.Second
	stopPatience   = 60 * time.Second
)

// member is one place in the group, in which one kconsume after another runs.
type member struct {
	rig   *rig
	name  string
	flags []string
	lives int
	proc  *process // the present one, ended or not; nil before the first
	life  string   // its name: m1.3 is the third life of m1
}

// start starts the member's next life.
func (m *member) start() error {
	m.lives++
	m.life = fmt.Sprintf("%s.%d", m.name, m.lives)
	dir := filepath.Join(m.rig.dir, m.name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make a member's folder: %w", err)
	}
	args := append([]string{
		"run", "--brokers", m.rig.kafka.Bootstrap(), "--group", group, "--topic", topicMain,
		"--handler", m.rig.handler, "--handler-env", "CHAOS_LOG=" + filepath.Join(m.rig.journals, m.life),
		"--handler-env", "CHAOS_KEYS=" + strconv.Itoa(keysPerPartition), "--handler-env", "CHAOS_GATE=" + m.rig.gate(),
		"--session-timeout", sessionTimeout.String(), "--metrics", "127.0.0.1:0", "--state-dir", filepath.Join(dir, "state"),
	}, m.flags...)
	env := append(os.Environ(), "XDG_RUNTIME_DIR="+dir, "RUNTIME_DIRECTORY=")
	var err error
	m.proc, err = m.rig.launcher.launch(m.logFile(), env, m.rig.kconsume, args...)
	return err
}

func (m *member) logFile() string { return filepath.Join(m.rig.dir, m.life+".log") }

func (m *member) kill() {
	if m.proc != nil {
		m.proc.kill()
	}
}

// stop ends the member by SIGTERM: it must drain and exit with 0.
func (m *member) stop() error {
	if err := m.proc.stop(stopPatience); err != nil {
		return fmt.Errorf("%s: %w\n%s", m.life, err, m.words())
	}
	return nil
}

// words are the end of the member's log.
func (m *member) words() string {
	b, err := os.ReadFile(m.logFile())
	if err != nil {
		return err.Error()
	}
	const keep = 3 << 10
	return string(b[max(0, len(b)-keep):])
}

// handlerPID is the newest handler process of the present life, 0 if there is none yet.
func (m *member) handlerPID() int {
	pid := 0
	var newest time.Time
	files, _ := filepath.Glob(filepath.Join(m.rig.journals, m.life+".*")) // the pattern is well formed
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil || info.ModTime().Before(newest) {
			continue
		}
		if n, err := strconv.Atoi(filepath.Ext(f)[1:]); err == nil && syscall.Kill(n, 0) == nil {
			pid, newest = n, info.ModTime()
		}
	}
	return pid
}

var metricsAddress = regexp.MustCompile(`metrics=(127\.0\.0\.1:\d+)`)

// metrics are the member's metrics as text.
func (m *member) metrics(ctx context.Context) ([]byte, error) {
	log, err := os.ReadFile(m.logFile())
	if err != nil {
		return nil, fmt.Errorf("find metrics address: %w", err)
	}
	at := metricsAddress.FindSubmatch(log)
	if at == nil {
		return nil, errors.New("find metrics address: the member has not started yet")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+string(at[1])+"/metrics", nil)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, 16<<20))
	if err != nil || res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("read metrics: %s: %w", res.Status, err)
	}
	return b, nil
}

// sum adds up the series of a metric whose labels hold all the given texts.
func sum(metrics []byte, name string, labels ...string) float64 {
	var total float64
series:
	for line := range bytes.Lines(metrics) {
		text := strings.TrimSpace(string(line))
		rest, ok := strings.CutPrefix(text, name)
		if !ok || rest == "" || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(rest, l) {
				continue series
			}
		}
		if v, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64); err == nil {
			total += v
		}
	}
	return total
}
