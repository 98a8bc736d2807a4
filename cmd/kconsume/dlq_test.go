package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/kconsume/kconsume/admin"
	"github.com/kconsume/kconsume/admin/dlq"
	"golang.org/x/sys/unix"
)

// standIn answers on a daemon's socket, as a test says.
type standIn struct {
	socket string
	mu     sync.Mutex
	seen   []string // requests: method, path and query, body
}

// newStandIn serves until the test ends. Requests are kept before they are answered.
func newStandIn(t *testing.T, s *shell, h http.Handler) *standIn {
	t.Helper()
	d := &standIn{socket: filepath.Join(s.dir, "d.sock")}
	l, err := net.Listen("unix", d.socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- admin.Serve(ctx, l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body) // what is cut off is not what a test waits for
			d.mu.Lock()
			d.seen = append(d.seen, strings.TrimSpace(r.Method+" "+r.URL.String()+" "+string(body)))
			d.mu.Unlock()
			h.ServeHTTP(w, r)
		}), slog.New(slog.DiscardHandler))
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	s.env = append(s.env, "KCONSUME_ADMIN=unix:"+d.socket)
	return d
}

func (d *standIn) requests() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]string(nil), d.seen...)
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the test sees what is missing
}

// replaying is a daemon with one plan and its job, which is as far as progress says.
func replaying(progress func(asked int) dlq.Job) http.Handler {
	mux := http.NewServeMux()
	asked := 0
	mux.HandleFunc("POST /v1/dlq/t.dlq/plans", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusCreated, dlq.Plan{Digest: "d1", Topic: "t.dlq", Records: 100, Request: dlq.PlanRequest{Action: dlq.ActionReplay}})
	})
	mux.HandleFunc("POST /v1/plans/d1/apply", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusAccepted, progress(0)) })
	mux.HandleFunc("GET /v1/jobs/j1", func(w http.ResponseWriter, _ *http.Request) {
		asked++ // one request at a time
		answer(w, http.StatusOK, progress(asked))
	})
	return mux
}

// growing is a job that ends at the fourth look, and of which the outcomes come
// with the fifth.
func growing(asked int) dlq.Job {
	j := dlq.Job{ID: "j1", Topic: "t.dlq", Action: dlq.ActionReplay, Status: dlq.JobCanary, Records: 100, Note: "waits for the outcome of the first record"}
	if asked > 0 {
		j.Status, j.Done, j.Note = dlq.JobRunning, min(100, 25*asked), ""
	}
	if asked >= 4 {
		j.Status, j.Succeeded = dlq.JobDone, 98
	}
	if asked >= 5 {
		j.Failed = 2
	}
	return j
}

// A job is watched to its end and its outcomes. Progress is drawn on a terminal,
// and nothing is drawn anywhere else.
func TestReplayShowsProgressOnATerminalOnly(t *testing.T) {
	for _, terminal := range []bool{false, true} {
		t.Run(fmt.Sprintf("terminal_%v", terminal), func(t *testing.T) {
			s := newShell(t)
			newStandIn(t, s, replaying(growing))
			args := []string{"dlq", "replay", "t.dlq", "--apply"}
			var r result
			if terminal {
				r = s.onTerminal(t, args...)
			} else {
				r = s.run(t, args...)
			}
			if r.code != 0 || !strings.Contains(r.stdout, "100, succeeded 98, failed again 2, on their way 0") || strings.Contains(r.stdout, "waits for") {
				t.Errorf("%+v", r)
			}
			drawn := strings.Contains(r.stderr, "█") && strings.Contains(r.stderr, "\r\x1b[K") && strings.Contains(r.stderr, "50/100")
			if drawn != terminal || !terminal && r.stderr != "" {
				t.Errorf("on a terminal: %v, drawn: %v: %q", terminal, drawn, r.stderr)
			}
		})
	}
}

// onTerminal runs a command whose stderr is a terminal.
func (s *shell) onTerminal(t *testing.T, args ...string) result {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out, shown strings.Builder
	cmd := s.command(args...)
	cmd.Stdout, cmd.Stderr = &out, slave
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(&shown, master) // it ends with an error once nobody has the other side
	}()
	_ = cmd.Wait() // its code is looked at
	<-read
	return result{cmd.ProcessState.ExitCode(), out.String(), shown.String()}
}

// An interrupt ends the watching; the job goes on, and it is said how to see it.
func TestInterruptDetaches(t *testing.T) {
	s := newShell(t)
	looked := make(chan struct{})
	var once sync.Once
	d := newStandIn(t, s, replaying(func(asked int) dlq.Job {
		if asked > 0 {
			once.Do(func() { close(looked) })
		}
		return dlq.Job{ID: "j1", Topic: "t.dlq", Action: dlq.ActionReplay, Status: dlq.JobRunning, Records: 100, Done: asked}
	}))
	p := s.start(t, "dlq", "replay", "t.dlq", "--apply", "--reason", "x")
	<-looked
	p.signal(t, os.Interrupt)
	p.await(t, "job j1 goes on: kconsume jobs show j1")
	if code := p.code(); code != 0 {
		t.Errorf("exit %d", code)
	}
	for _, r := range d.requests() {
		if strings.Contains(r, "cancel") {
			t.Errorf("it asked %s", r)
		}
	}
}

// What a daemon refuses has an exit code, and is told in its own words.
func TestRefusalsOfDaemons(t *testing.T) {
	for status, code := range map[int]int{400: 64, 401: 77, 403: 77, 404: 1, 409: 75, 410: 1, 413: 1, 429: 75, 500: 1, 503: 75} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			s := newShell(t)
			newStandIn(t, s, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				answer(w, status, admin.Problem{Status: status, Title: "No", Detail: "not today: come back"})
			}))
			for _, args := range [][]string{
				{"dlq", "list", "t.dlq"}, {"dlq", "groups", "t.dlq"}, {"dlq", "show", "t.dlq", "0:1"}, {"dlq", "export", "t.dlq"}, {"dlq", "replay", "t.dlq"},
				{"dlq", "discard", "t.dlq", "0:1", "--reason", "x"}, {"jobs", "list"}, {"jobs", "show", "j1"}, {"jobs", "cancel", "j1", "--reason", "x"},
			} {
				if r := s.run(t, args...); r.code != code || r.stderr != "kconsume: not today: come back\n" || r.stdout != "" {
					t.Errorf("%q: %+v, want exit %d", args, r, code)
				}
			}
		})
	}
}

// Flags stand before, between and behind arguments, and all of them reach the daemon.
func TestFlagsReachTheDaemon(t *testing.T) {
	s := newShell(t)
	d := newStandIn(t, s, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/plans"):
			answer(w, http.StatusCreated, dlq.Plan{Digest: "d1", Records: 1})
		case strings.HasSuffix(r.URL.Path, "/messages"):
			answer(w, http.StatusOK, dlq.MessagePage{Messages: []dlq.Message{}})
		default:
			answer(w, http.StatusOK, dlq.Message{Topic: "t.dlq"})
		}
	}))
	for _, one := range []struct {
		code int
		args string
		want string
	}{
		{0, "dlq list t.dlq --status new,uncertain --key k --since 2026-01-02T03:04:05Z --limit 7", "GET /v1/dlq/t.dlq/messages?key=k&limit=7&since=2026-01-02T03%3A04%3A05Z&status=new%2Cuncertain"},
		{0, "dlq list --limit 7 t.dlq --all --class timeout --failed-by orders@1", "GET /v1/dlq/t.dlq/messages?class=timeout&earlier=true&handler=orders%401&limit=7"},
		{0, "dlq list t.dlq --key=", "GET /v1/dlq/t.dlq/messages?key=&limit=50"},
		{2, "dlq replay t.dlq --limit 5 --rate 20 --canary --target source --fingerprint ab", `POST /v1/dlq/t.dlq/plans {"action":"replay","selection":{"fingerprint":"ab","limit":5},"target":"source","rate":20,"canary":true}`},
		{2, "dlq replay --force t.dlq 3:4 --reason because", `POST /v1/dlq/t.dlq/plans {"action":"replay","selection":{"positions":[{"partition":3,"offset":4}]},"target":"replay","rate":100,"force":true,"reason":"because"}`},
		{2, "dlq discard t.dlq --until 2026-01-02T03:04:05Z --reason old", `POST /v1/dlq/t.dlq/plans {"action":"discard","selection":{"until":"2026-01-02T03:04:05Z"},"reason":"old"}`},
		{0, "dlq discard t.dlq 0:9 --reason old", `POST /v1/dlq/t.dlq/messages/0/9/discard {"reason":"old"}`},
	} {
		before := len(d.requests())
		r := s.run(t, strings.Fields(one.args)...)
		seen := d.requests()[before:]
		if r.code != one.code || len(seen) != 1 || seen[0] != one.want {
			t.Errorf("%s: %+v asked\n%q, want\n%q", one.args, r, seen, one.want)
		}
	}
	before := len(d.requests())
	for _, args := range []string{
		"dlq list t.dlq --status lost", "dlq list t.dlq --since yesterday", "dlq show t.dlq x", "dlq discard t.dlq 0:1", "dlq list a b", "dlq replay", "dlq replay t.dlq --rate x",
		"dlq list t.dlq --apply", "jobs cancel j1", "jobs show",
	} {
		if r := s.run(t, strings.Fields(args)...); r.code != 64 && r.code != 78 || r.stderr == "" {
			t.Errorf("%s: %+v", args, r)
		}
	}
	if n := len(d.requests()); n != before {
		t.Errorf("the daemon was asked by a command line that is wrong: %q", d.requests()[before:])
	}
}

// A long list comes page by page, and ends where it is asked to.
func TestListTurnsPages(t *testing.T) {
	s := newShell(t)
	d := newStandIn(t, s, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		page := dlq.MessagePage{Cursor: "next"}
		n := 0
		_, _ = fmt.Sscan(q.Get("limit"), &n)
		if q.Get("cursor") == "" {
			n-- // a page may hold fewer
		}
		for i := range n {
			page.Messages = append(page.Messages, dlq.Message{Position: dlq.Position{Offset: int64(i)}, Error: "red \x1b[31m and \u202e turned\nlines"})
		}
		answer(w, http.StatusOK, page)
	}))
	r := s.run(t, "dlq", "list", "t.dlq", "--limit", "700")
	if want := []string{"GET /v1/dlq/t.dlq/messages?limit=500", "GET /v1/dlq/t.dlq/messages?cursor=next&limit=201"}; fmt.Sprint(d.requests()) != fmt.Sprint(want) {
		t.Errorf("asked %q, want %q", d.requests(), want)
	}
	if lines := strings.Count(r.stdout, "\n"); r.code != 0 || lines != 701 || strings.ContainsAny(r.stdout, "\x1b\u202e") {
		t.Errorf("exit %d, %d lines: %.300q", r.code, lines, r.stdout)
	}
}
