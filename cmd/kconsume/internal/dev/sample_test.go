package dev

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/kconsume/kconsume/plugins/examples/orders/order"
)

func TestSamplesAreWhatTheyAreMadeFor(t *testing.T) {
	kinds := map[kind]int{}
	keys := map[string]bool{}
	const n = 2000
	for i := range n {
		s, k := sampleAt(i), kindOf(i)
		kinds[k]++
		keys[s.key] = true
		var o order.Order
		err := json.Unmarshal(s.value, &o)
		if (err != nil) != (k == poison) {
			t.Fatalf("sample %d of kind %d: decoding says %v", i, k, err)
		}
		if err != nil {
			continue
		}
		err = o.Validate()
		if _, isInvalid := errors.AsType[*order.ValidationError](err); isInvalid != (k == invalid) {
			t.Errorf("sample %d of kind %d: validation says %v", i, k, err)
		}
		if want := fmt.Sprint(firstOrder + i); o.ID != want || s.what != "order "+want || o.Customer != s.key {
			t.Errorf("sample %d: order %q of %q is called %q and has key %q", i, o.ID, o.Customer, s.what, s.key)
		}
		if kindOfOrder(o.ID) != k {
			t.Errorf("order %s: kind %d, want %d", o.ID, kindOfOrder(o.ID), k)
		}
	}
	if len(keys) != len(customers) {
		t.Errorf("%d customers, want %d", len(keys), len(customers))
	}
	for k := fine; k <= invalid; k++ {
		if kinds[k] == 0 {
			t.Errorf("kind %d never comes", k)
		}
	}
	if kinds[fine] < n*8/10 {
		t.Errorf("%d of %d are fine: trouble must be the exception", kinds[fine], n)
	}
}

func TestOpeningTellsEveryStory(t *testing.T) {
	want := map[string]kind{"1001": fine, "1002": flaky, "1004": doomed, "1006": poison, "1008": invalid}
	for id, k := range want { // the header names these
		if got := kindOfOrder(id); got != k {
			t.Errorf("order %s is of kind %d, want %d", id, got, k)
		}
	}
}
