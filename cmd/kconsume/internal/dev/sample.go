package dev

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/kconsume/kconsume/plugins/examples/orders/order"
)

// kind is what a sample order is made for.
type kind uint8

const (
	fine    kind = iota // handled at once
	flaky               // the gateway refuses its first charge
	doomed              // the gateway refuses every charge
	poison              // its value is no JSON
	invalid             // its total is wrong
)

// sample is one record for the main topic.
type sample struct {
	key   string // the customer: their orders are handled one at a time
	value []byte
	what  string // what a person calls it
}

// firstOrder is the number of the first sample's order.
const firstOrder = 1001

var (
	customers = [...]string{"anna", "ben", "chen", "dora", "emil", "fatma", "goran", "hilde", "ines", "jun"}
	// opening shows every kind within the first seconds, with room between them.
	opening = [...]kind{fine, flaky, fine, doomed, fine, poison, fine, invalid}
	// later repeats after the opening: trouble stays the exception.
	later = map[int]kind{7: flaky, 19: flaky, 27: doomed, 33: poison, 41: flaky, 49: invalid}
)

const laterCycle = 60 // samples

// kindOf is the kind of the nth sample, counted from 0.
func kindOf(n int) kind {
	if n < len(opening) {
		return opening[n]
	}
	return later[(n-len(opening))%laterCycle]
}

// kindOfOrder is the kind of an order by its id; fine for ids that are none of
// the samples'.
func kindOfOrder(id string) kind {
	number, err := strconv.Atoi(id)
	if err != nil || number < firstOrder {
		return fine
	}
	return kindOf(number - firstOrder)
}

// sampleAt is the nth sample, counted from 0. It depends on n only.
func sampleAt(n int) sample {
	id := strconv.Itoa(firstOrder + n)
	s := sample{key: customers[n%len(customers)], what: "order " + id}
	switch kindOf(n) {
	case poison:
		s.value = fmt.Appendf(nil, "order %s: two mugs, please", id)
		s.what = "text " + id
	case invalid:
		s.value = encode(orderAt(n, id, s.key, 100))
	default:
		s.value = encode(orderAt(n, id, s.key, 0))
	}
	return s
}

// orderAt is an order whose total is off by so many cents.
func orderAt(n int, id, customer string, off int64) *order.Order {
	items := []order.Item{{SKU: "mug", Quantity: int64(n%3 + 1), PriceCents: 1250}}
	if n%2 == 1 {
		items = append(items, order.Item{SKU: "teapot", Quantity: 1, PriceCents: 3900})
	}
	o := &order.Order{ID: id, Customer: customer, Currency: "EUR", Items: items, TotalCents: off}
	for _, it := range items {
		o.TotalCents += it.Quantity * it.PriceCents
	}
	return o
}

func encode(o *order.Order) []byte {
	b, err := json.Marshal(o)
	if err != nil {
		panic("dev: a sample order cannot be encoded: " + err.Error())
	}
	return b
}
