package dev

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/kconsume/kconsume/plugins/examples/orders/payment"
)

// gateway is a payment gateway that fails for some of the sample orders. It
// lives as long as dev, so what it has refused outlives a handler process.
type gateway struct {
	server   *http.Server
	listener net.Listener
	wg       sync.WaitGroup // the serving goroutine

	mu      sync.Mutex
	refused map[string]struct{} // flaky orders that had their refusal
}

// maxRefused bounds the memory for flaky orders. The set starts anew beyond it,
// at the price of a second refusal for those that wait just then.
const maxRefused = 10_000

// startGateway listens on a free loopback port. The caller closes it.
func startGateway() (*gateway, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the payment gateway: %w", err)
	}
	g := &gateway{listener: l, refused: make(map[string]struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /charges", g.charge)
	g.server = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, MaxHeaderBytes: 16 << 10}
	g.wg.Go(func() { _ = g.server.Serve(l) }) // ends with ErrServerClosed only
	return g, nil
}

func (g *gateway) url() string { return "http://" + g.listener.Addr().String() }

func (g *gateway) close(ctx context.Context) error {
	err := g.server.Shutdown(ctx)
	if err != nil {
		err = errors.Join(fmt.Errorf("close the payment gateway: %w", err), g.server.Close())
	}
	g.wg.Wait()
	return err
}

func (g *gateway) charge(w http.ResponseWriter, r *http.Request) {
	var c payment.Charge
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(&c); err != nil {
		http.Error(w, "not a charge", http.StatusBadRequest)
		return
	}
	if !g.accepts(c.OrderID) {
		http.Error(w, "busy", http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusCreated)
}

// accepts decides on one charge, and remembers a flaky order's refusal.
func (g *gateway) accepts(orderID string) bool {
	switch kindOfOrder(orderID) {
	case doomed:
		return false
	case flaky:
		g.mu.Lock()
		defer g.mu.Unlock()
		if _, had := g.refused[orderID]; had {
			return true
		}
		if len(g.refused) >= maxRefused {
			clear(g.refused)
		}
		g.refused[orderID] = struct{}{}
		return false
	default:
		return true
	}
}
