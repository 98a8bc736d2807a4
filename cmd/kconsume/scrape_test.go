package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
)

// sockets is how many a process has open.
func (p *process) sockets(t *testing.T) (n int) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid)
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range all {
		if to, err := os.Readlink(dir + "/" + fd.Name()); err == nil && strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}

// Scrapes that hang, at any point, take a bounded number of connections for a
// bounded time: whoever scrapes as it should gets its answer.
func TestScrapesThatHang(t *testing.T) {
	_, brokers := newBroker(t, kfake.SeedTopics(1, "t"))
	p := newShell(t).start(t, daemonArgs(t, brokers)...)
	metrics := field(t, p.await(t, "msg=started"), "metrics")
	p.await(t, "joined the group")
	if code, body := get(t, metrics, "/metrics"); code != 200 || !strings.Contains(body, "kconsume_build_info{") {
		t.Fatalf("%d %s", code, body)
	}
	before := p.sockets(t)
	http.DefaultClient.CloseIdleConnections() // the connection of before would be used again
	const clients = maxScrapes + 20
	for i := range clients {
		c, err := net.Dial("tcp", metrics)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		sent := ""
		switch i % 3 {
		case 0: // says nothing at all
		case 1:
			sent = "GET /metrics HTTP/1.1\r\nHost: x\r\nX-Slow: "
		case 2: // asks, and never reads the answer
			if err := c.(*net.TCPConn).SetReadBuffer(1); err != nil {
				t.Fatal(err)
			}
			sent = strings.Repeat("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 20)
		}
		if _, err := c.Write([]byte(sent)); err != nil {
			t.Fatal(err)
		}
	}
	most := 0
	until(t, "they take all connections there are", func() bool {
		most = max(most, p.sockets(t)-before)
		return most >= maxScrapes/2
	})
	// While many ask at once some are told to come again.
	until(t, "a scrape beside those that hang is answered", func() bool {
		most = max(most, p.sockets(t)-before)
		code, body := get(t, metrics, "/metrics")
		most = max(most, p.sockets(t)-before)
		return code == 200 && strings.Contains(body, "kconsume_build_info{")
	})
	// A few more are the brokers' connections.
	if most > maxScrapes+8 {
		t.Errorf("%d connections of %d clients that hang", most, clients)
	}
}

// An address that is taken ends the start, and says which flag to change.
func TestPortsInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := l.Addr().String()
	s := newShell(t)
	tokens := writeFile(t, s.dir+"/tokens", "admin ada "+token("a")+"\n", 0o600)
	for flag, more := range map[string][]string{
		"--metrics":   {"--metrics", taken},
		"--admin tcp": {"--admin", "tcp:" + taken, "--admin-tokens", tokens},
	} {
		args := daemonArgs(t, "127.0.0.1:1", more...)
		if flag == "--metrics" { // which is given once
			args = append(append([]string{"run", "--brokers", "127.0.0.1:1", "--group", testGroup, "--topic", "t"}, probe(t)...), more...)
		}
		r := s.run(t, args...)
		if r.code != 78 || !strings.Contains(r.stderr, "address already in use") || !strings.Contains(r.stderr, flag) || strings.Count(r.stderr, "\n") != 1 {
			t.Errorf("%s: %+v", flag, r)
		}
	}
}
