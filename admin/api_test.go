package admin

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestStatusOverASocket(t *testing.T) {
	path := filepath.Join(socketDir(t), "s.sock")
	peers := make(chan Peer, 1)
	serve(t, path, func(ctx context.Context) (any, error) {
		p, ok := PeerOf(ctx)
		if !ok {
			return nil, errors.New("no peer")
		}
		peers <- p
		return map[string]any{"group": "billing"}, nil
	})
	var got struct{ Group string }
	if err := NewClient(path).Status(t.Context(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Group != "billing" {
		t.Errorf("%+v", got)
	}
	if p := <-peers; p.UID != os.Getuid() || p.GID != os.Getgid() || p.PID != os.Getpid() {
		t.Errorf("peer %+v", p)
	}
}

func TestProblems(t *testing.T) {
	path := filepath.Join(socketDir(t), "s.sock")
	failures := make(chan error, 1)
	serve(t, path, func(context.Context) (any, error) { return nil, <-failures })
	for _, c := range []struct {
		name, request string
		failure       error
		status        int
		detail        string
	}{
		{"unknown path", "GET /v1/nope HTTP/1.1\r\nHost: k\r\n\r\n", nil, 404, "/v1/nope"},
		{"method", "POST /v1/status HTTP/1.1\r\nHost: k\r\nContent-Length: 0\r\n\r\n", nil, 405, "POST"},
		{"failure", "GET /v1/status HTTP/1.1\r\nHost: k\r\n\r\n", errors.New("broken"), 500, "broken"},
		{"late", "GET /v1/status HTTP/1.1\r\nHost: k\r\n\r\n", context.DeadlineExceeded, 503, "in time"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.failure != nil {
				failures <- c.failure
			}
			res := exchange(t, path, c.request)
			if res.StatusCode != c.status || res.Header.Get("Content-Type") != "application/problem+json" {
				t.Fatalf("%s, %s", res.Status, res.Header.Get("Content-Type"))
			}
			if res.Header.Get("Cache-Control") != "no-store" || res.Header.Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("headers %v", res.Header)
			}
			if c.status == 405 && res.Header.Get("Allow") != "GET, HEAD" {
				t.Errorf("Allow %q", res.Header.Get("Allow"))
			}
			body, err := io.ReadAll(res.Body)
			if err != nil {
				t.Fatal(err)
			}
			var p Problem
			if err := json.Unmarshal(body, &p); err != nil {
				t.Fatal(err)
			}
			if p.Status != c.status || p.Title != http.StatusText(c.status) || p.Type != "about:blank" || !strings.Contains(p.Detail, c.detail) {
				t.Errorf("%+v", p)
			}
		})
	}
}

func TestHeaderLimit(t *testing.T) {
	path := filepath.Join(socketDir(t), "s.sock")
	serve(t, path, func(context.Context) (any, error) { return 1, nil })
	res := exchange(t, path, "GET /v1/status HTTP/1.1\r\nHost: k\r\nX: "+strings.Repeat("x", 64<<10)+"\r\n\r\n")
	if res.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("%s", res.Status)
	}
}

// exchange sends bytes and reads one answer.
func exchange(t *testing.T, path, request string) *http.Response {
	t.Helper()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	// The server may answer, and close, before it has read everything.
	if _, err := io.WriteString(c, request); err != nil && len(request) < 1<<10 {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func TestClientErrors(t *testing.T) {
	dir := socketDir(t)
	var v any
	err := NewClient(filepath.Join(dir, "none.sock")).Status(t.Context(), &v)
	if _, ok := errors.AsType[*net.OpError](err); !ok || !strings.Contains(err.Error(), "none.sock") {
		t.Errorf("%v", err)
	}
	path := filepath.Join(dir, "s.sock")
	serve(t, path, func(context.Context) (any, error) { return nil, errors.New("broken") })
	err = NewClient(path).Status(t.Context(), &v)
	if e, ok := errors.AsType[*CallError](err); !ok || e.Problem.Status != 500 || !strings.Contains(err.Error(), "broken") {
		t.Errorf("%v", err)
	}
}

// A connection that says nothing takes a slot; the others go on.
func TestServeManyConnections(t *testing.T) {
	path := filepath.Join(socketDir(t), "s.sock")
	serve(t, path, func(context.Context) (any, error) { return 1, nil })
	var idle []net.Conn
	for range maxConns - 1 {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		idle = append(idle, c)
	}
	var v int
	for range 3 {
		if err := NewClient(path).Status(t.Context(), &v); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range idle {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}
