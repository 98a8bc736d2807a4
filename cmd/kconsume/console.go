package main

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/kconsume/kconsume/admin"
	"github.com/kconsume/kconsume/cmd/kconsume/internal/option"
)

func consoleCommand() command {
	return command{name: "console", usage: "open a daemon's console in a browser",
		description: "A browser cannot open a unix socket: this serves the console on a port of this host until it is interrupted,\n" +
			"as whoever runs it. The link that it prints is good for one browser.",
		use: option.Status | option.Listening, action: openConsole}
}

func openConsole(ctx context.Context, in *invocation) error {
	c, err := daemonOf(in)
	if err != nil {
		return err
	}
	var s daemonStatus
	if err := c.Status(ctx, &s); err != nil {
		return refused(c, err)
	}
	if remote(c.Name()) { // a browser can open it by itself
		fmt.Fprintf(in.stdout, "console of group %s: %s\n", printable(s.Group), c.Name())
		return nil
	}
	g, err := openGateway(c.Name(), in.opts.Text("listen"))
	if err != nil {
		return fail(exitConfig, "%w: give another address with --listen", err)
	}
	defer g.close()
	fmt.Fprintf(in.stdout, "console of group %s: %s\n", printable(s.Group), g.link())
	fmt.Fprintln(in.stderr, "The link is good for one browser. An interrupt ends it.")
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	select {
	case <-g.ended:
		return errors.New("serve the console: it ended by itself")
	case <-ctx.Done():
		return nil
	}
}

const gatewayCookie = "kconsume_gateway"

// gateway lets one browser through to a daemon's socket: the one that comes
// first by the link.
type gateway struct {
	address string // ours
	next    *httputil.ReverseProxy
	server  *http.Server
	ended   chan struct{} // closed when nothing is served any more

	mu     sync.Mutex
	once   string // of the link, "" = it was used
	cookie string
}

// openGateway serves on an address of this host until it is closed.
func openGateway(socket, address string) (*gateway, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for the console: %s: %s", address, cause(err))
	}
	g := newGateway(socket, l.Addr().String())
	g.server = &http.Server{Handler: g, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	go func() {
		defer close(g.ended)
		_ = g.server.Serve(l) // how it ended does not matter: it is closed, or the caller is told by ended
	}()
	return g, nil
}

// close ends it with all its connections.
func (g *gateway) close() {
	_ = g.server.Close() // the port is given back in any case
	<-g.ended
}

func newGateway(socket, address string) *gateway {
	return &gateway{address: address, ended: make(chan struct{}), once: rand.Text() + rand.Text(), cookie: rand.Text() + rand.Text(), next: &httputil.ReverseProxy{
		Transport: admin.SocketTransport(socket),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: "kconsume"})
			r.Out.Host = r.In.Host // the daemon holds a form's origin against it
			r.Out.Header.Del("Cookie")
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, "the daemon does not answer: "+err.Error(), http.StatusBadGateway)
		},
	}}
}

func (g *gateway) link() string { return "http://" + g.address + "/?link=" + g.once }

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Host != g.address { // a page whose name was made to point here
		http.Error(w, "use the address that kconsume console printed", http.StatusForbidden)
		return
	}
	if given := r.URL.Query().Get("link"); given != "" && g.use(given) {
		http.SetCookie(w, &http.Cookie{Name: gatewayCookie, Value: g.cookie, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
		w.Header().Set("Referrer-Policy", "no-referrer")
		http.Redirect(w, r, "/", http.StatusSeeOther)
		return
	}
	c, err := r.Cookie(gatewayCookie)
	if err != nil || !same(c.Value, g.cookie) {
		http.Error(w, "this link was used: run kconsume console again", http.StatusForbidden)
		return
	}
	g.next.ServeHTTP(w, r)
}

// use reports whether it is the link, which works once.
func (g *gateway) use(given string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.once == "" || !same(given, g.once) {
		return false
	}
	g.once = ""
	return true
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
