package dev

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/kconsume/kconsume/plugins/examples/orders/payment"
)

// The real client against the real server: what it takes for an order to fail.
func TestGateway(t *testing.T) {
	g, err := startGateway()
	if err != nil {
		t.Fatal(err)
	}
	c := payment.NewClient(g.url())
	t.Cleanup(func() {
		c.Close()
		if err := g.close(t.Context()); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
	tests := []struct {
		order string
		want  []int // status of each charge, 0 = accepted
	}{
		{"1001", []int{0, 0}},
		{"1002", []int{503, 0, 0}},
		{"1004", []int{503, 503, 503, 503}},
		{"of nobody", []int{0}},
	}
	for _, tt := range tests {
		for i, want := range tt.want {
			err := c.Charge(t.Context(), payment.Charge{OrderID: tt.order, IdempotencyKey: tt.order})
			got := 0
			if ge, ok := errors.AsType[*payment.GatewayError](err); ok {
				got = ge.StatusCode
			} else if err != nil {
				t.Fatal(err)
			}
			if got != want {
				t.Errorf("order %s, charge %d: %d, want %d", tt.order, i+1, got, want)
			}
		}
	}
}

func TestGatewayRefusesWhatIsNoCharge(t *testing.T) {
	g, err := startGateway()
	if err != nil {
		t.Fatal(err)
	}
	defer g.close(t.Context())
	resp, err := http.Post(g.url()+"/charges", "application/json", strings.NewReader("{"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusBadRequest {
		t.Errorf("status %d, want 400", resp.StatusCode)
	}
}

func TestGatewayForgetsRatherThanGrows(t *testing.T) {
	g := &gateway{refused: make(map[string]struct{})}
	for i := 0; len(g.refused) < maxRefused; i++ {
		g.refused[strings.Repeat("x", i%7)+string(rune(i))] = struct{}{}
	}
	if g.accepts("1002") || len(g.refused) != 1 {
		t.Errorf("%d remembered, want 1", len(g.refused))
	}
}
