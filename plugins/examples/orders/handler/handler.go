// Package handler is what is done for one confirmed order: check it, charge
// it, keep it.
package handler

import (
	"context"
	"errors"
	"strconv"

	"github.com/kconsume/kconsume/plugin"
	"github.com/kconsume/kconsume/plugins/examples/orders/order"
	"github.com/kconsume/kconsume/plugins/examples/orders/payment"
	"github.com/kconsume/kconsume/plugins/examples/orders/store"
)

// Payments takes money. A charge that it did not confirm is a
// *payment.GatewayError.
type Payments interface {
	Charge(context.Context, payment.Charge) error
}

// New returns the handler of confirmed orders. A record that is no JSON never
// gets as far as handle: plugin.JSON makes it a poison pill.
func New(p Payments, s store.Store) plugin.Handler {
	h := &orders{p, s}
	return plugin.JSON(h.handle)
}

type orders struct {
	payments Payments
	store    store.Store
}

// handle may run more than once for one order: the record's id, the same on
// every delivery and replay, keeps the customer from paying twice, and the
// store keeps an order once.
func (h *orders) handle(ctx context.Context, o order.Order, m *plugin.Message) error {
	if err := o.Validate(); err != nil {
		return err
	}
	err := h.payments.Charge(ctx, payment.Charge{
		OrderID: o.ID, Customer: o.Customer, AmountCents: o.TotalCents, Currency: o.Currency, IdempotencyKey: m.ID,
	})
	if err != nil {
		return err
	}
	return h.store.Save(ctx, &o)
}

// Classify says which of the shop's own errors may pass; it is asked before
// the SDK's rules. What it has no opinion on they decide: deadlines, the
// network, a database's serialization failure.
func Classify(err error) (plugin.Verdict, bool) {
	if e, ok := errors.AsType[*payment.GatewayError](err); ok {
		return plugin.Verdict{Class: gatewayClass(e.StatusCode), Code: strconv.Itoa(e.StatusCode)}, true
	}
	if _, ok := errors.AsType[*order.ValidationError](err); ok {
		return plugin.Verdict{Class: plugin.ClassPermanent, Code: "validation"}, true
	}
	return plugin.Verdict{}, false
}

// gatewayClass: no answer and the gateway's own failures may pass; what it
// refused it will refuse again.
func gatewayClass(status int) plugin.Class {
	if status == 0 || status >= 500 {
		return plugin.ClassTransient
	}
	return plugin.ClassPermanent
}
