package main

import (
	"net"
	"strings"
	"testing"

	"github.com/kconsume/kconsume/plugin"
	"github.com/kconsume/kconsume/plugins/examples/orders/order"
	"github.com/kconsume/kconsume/plugins/examples/orders/store"
)

func TestOpenStore(t *testing.T) {
	s, err := openStore("")
	if _, ok := s.(*store.Memory); !ok || err != nil {
		t.Errorf("without a database: %T, %v; want orders kept in memory", s, err)
	}
	const secret = "s3cret"
	_, err = openStore("postgres://shop:" + secret + "@db:not-a-port/orders")
	if err == nil || strings.Contains(err.Error(), secret) {
		t.Errorf("bad URL: %v; want an error without the password", err)
	}
}

// A real driver, and no server behind the address: that passes.
func TestDatabaseThatIsAwayIsTransient(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	s, err := openStore("postgres://shop@" + addr + "/orders?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	err = s.Save(t.Context(), &order.Order{ID: "1001"})
	if v := plugin.Classify(err, plugin.Circumstances{}); v.Class != plugin.ClassTransient {
		t.Errorf("%v: class %d by rule %s, want transient", err, v.Class, v.Rule)
	}
}
