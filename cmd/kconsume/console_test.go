package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/kconsume/kconsume/admin"
)

// openedConsole is `kconsume console` at work.
type openedConsole struct {
	link   *url.URL
	stop   func() (code int)
	origin string
}

// openConsoleOf runs it beside a daemon whose pages say who asks, and what for.
func openConsoleOf(t *testing.T, flags ...string) openedConsole {
	t.Helper()
	s := newShell(t)
	newStandIn(t, s, admin.New(admin.Config{
		Status: func(context.Context) (any, error) { return map[string]string{"group": "billing"}, nil },
		Console: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			actor, _ := admin.ActorOf(r.Context())
			fmt.Fprintf(w, "%s %s by %s, cookies %q", r.Method, r.URL.Path, actor.Via, r.Header.Get("Cookie"))
		}),
	}))
	cmd := s.command(append([]string{"console"}, flags...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	ended := false
	stop := func() int {
		if !ended {
			ended = true
			_ = cmd.Process.Signal(os.Interrupt) // it may have ended
			_ = cmd.Wait()                       // its code is looked at
		}
		return cmd.ProcessState.ExitCode()
	}
	t.Cleanup(func() { stop() })
	_, link, ok := strings.Cut(line, "console of group billing: ")
	u, perr := url.Parse(strings.TrimSpace(link))
	if err != nil || !ok || perr != nil {
		stop()
		t.Fatalf("it printed %q (%v, %v)\n%s", line, err, perr, &stderr)
	}
	return openedConsole{link: u, stop: stop, origin: "http://" + u.Host}
}

// ask makes a request as a browser would: redirects are not followed, names and
// values of headers in turn.
func (c openedConsole) ask(t *testing.T, method, path string, header ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, c.origin+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		if r.Header.Set(header[i], header[i+1]); header[i] == "Host" {
			r.Host = header[i+1]
		}
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(body)
}

// The link that kconsume console prints lets one browser in, and nobody else:
// not a second time, not by another name, not from another site's page.
func TestConsoleLetsOneBrowserIn(t *testing.T) {
	c := openConsoleOf(t)
	if host := c.link.Hostname(); host != "127.0.0.1" {
		t.Errorf("it listens on %s", host)
	}
	refused := func(what, method, path string, header ...string) {
		t.Helper()
		if res, body := c.ask(t, method, path, header...); res.StatusCode != http.StatusForbidden || strings.Contains(body, "by socket") {
			t.Errorf("%s: %d %s", what, res.StatusCode, body)
		}
	}
	refused("no link", http.MethodGet, "/")
	refused("a guessed link", http.MethodGet, "/?link=AAAA")
	refused("the link by another name", http.MethodGet, c.link.RequestURI(), "Host", "127.evil.example:"+c.link.Port())

	res, _ := c.ask(t, http.MethodGet, c.link.RequestURI())
	if res.StatusCode != http.StatusSeeOther || res.Header.Get("Location") != "/" || res.Header.Get("Referrer-Policy") != "no-referrer" || len(res.Cookies()) != 1 {
		t.Fatalf("the link: %d %v", res.StatusCode, res.Header)
	}
	k := res.Cookies()[0]
	if !k.HttpOnly || k.SameSite != http.SameSiteStrictMode || k.Path != "/" || k.Domain != "" || len(k.Value) < 40 || strings.Contains(c.link.String(), k.Value) {
		t.Errorf("the cookie: %+v", k)
	}
	cookie := k.Name + "=" + k.Value
	refused("the link again", http.MethodGet, c.link.RequestURI())
	refused("a wrong cookie", http.MethodGet, "/", "Cookie", k.Name+"="+strings.Repeat("A", len(k.Value)))
	for _, host := range []string{"localhost:" + c.link.Port(), "127.0.0.1", "127.evil.example:" + c.link.Port(), "evil.example"} {
		refused("host "+host, http.MethodGet, "/", "Cookie", cookie, "Host", host)
	}

	// The daemon sees who runs the command, and not the cookie.
	if res, body := c.ask(t, http.MethodGet, "/jobs", "Cookie", cookie); res.StatusCode != http.StatusOK || body != `GET /jobs by socket, cookies ""` || res.Header.Get("Content-Security-Policy") == "" {
		t.Errorf("a page: %d %s", res.StatusCode, body)
	}
	for _, header := range [][]string{{"Origin", c.origin, "Sec-Fetch-Site", "same-origin"}, {"Origin", c.origin}} {
		if res, body := c.ask(t, http.MethodPost, "/plans/d1", append(header, "Cookie", cookie)...); res.StatusCode != http.StatusOK || !strings.HasPrefix(body, "POST /plans/d1 by socket") {
			t.Errorf("a form with %q: %d %s", header, res.StatusCode, body)
		}
	}
	for _, header := range [][]string{
		{"Origin", "http://evil.example", "Sec-Fetch-Site", "cross-site"}, {"Origin", "http://evil.example"}, {"Sec-Fetch-Site", "cross-site"},
		{"Origin", "null"}, {"Origin", "http://127.0.0.1:1", "Sec-Fetch-Site", "same-site"}, {"Origin", "http://127.0.0.1:1"},
	} {
		refused(fmt.Sprintf("a form with %q", header), http.MethodPost, "/plans/d1", append(header, "Cookie", cookie)...)
	}
	if code := c.stop(); code != 0 {
		t.Errorf("after an interrupt exit %d", code)
	}
}

// It is for this host alone.
func TestConsoleListensOnThisHostAlone(t *testing.T) {
	s := newShell(t)
	newStandIn(t, s, admin.New(admin.Config{Status: func(context.Context) (any, error) { return map[string]string{}, nil }}))
	for _, address := range []string{"0.0.0.0:0", ":0", "192.0.2.1:80", "example.org:80"} {
		if r := s.run(t, "console", "--listen", address); r.code != exitConfig && r.code != exitUsage || r.stdout != "" || !strings.Contains(r.stderr, "this host") {
			t.Errorf("%s: %+v", address, r)
		}
	}
	if r := newShell(t).run(t, "console"); r.code != exitUnavailable {
		t.Errorf("without a daemon: %+v", r)
	}
}
