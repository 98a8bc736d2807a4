package order

import (
	"errors"
	"testing"
)

func valid() Order {
	return Order{
		ID: "1001", Customer: "anna", Currency: "EUR", TotalCents: 2500,
		Items: []Item{{SKU: "mug", Quantity: 2, PriceCents: 1000}, {SKU: "pen", Quantity: 1, PriceCents: 500}},
	}
}

func TestValidate(t *testing.T) {
	tests := []struct {
		name  string
		spoil func(*Order)
		field string // "" = valid
	}{
		{"valid", func(*Order) {}, ""},
		{"free of charge", func(o *Order) { o.Items = []Item{{SKU: "gift", Quantity: 1}}; o.TotalCents = 0 }, ""},
		{"no id", func(o *Order) { o.ID = "" }, "order_id"},
		{"no customer", func(o *Order) { o.Customer = "" }, "customer"},
		{"no currency", func(o *Order) { o.Currency = "" }, "currency"},
		{"small letters", func(o *Order) { o.Currency = "eur" }, "currency"},
		{"no items", func(o *Order) { o.Items = nil }, "items"},
		{"too many items", func(o *Order) { o.Items = make([]Item, maxItems+1) }, "items"},
		{"no sku", func(o *Order) { o.Items[1].SKU = "" }, "items[1].sku"},
		{"quantity zero", func(o *Order) { o.Items[0].Quantity = 0 }, "items[0].quantity"},
		{"quantity negative", func(o *Order) { o.Items[1].Quantity = -3 }, "items[1].quantity"},
		{"quantity that overflows", func(o *Order) { o.Items[0].Quantity = 1 << 62 }, "items[0].quantity"},
		{"price negative", func(o *Order) { o.Items[0].PriceCents = -1 }, "items[0].price_cents"},
		{"price too high", func(o *Order) { o.Items[0].PriceCents = maxCents + 1 }, "items[0].price_cents"},
		{"wrong total", func(o *Order) { o.TotalCents = 2501 }, "total_cents"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := valid()
			tt.spoil(&o)
			err := o.Validate()
			if tt.field == "" {
				if err != nil {
					t.Fatalf("Validate: %v", err)
				}
				return
			}
			ve, ok := errors.AsType[*ValidationError](err)
			if !ok {
				t.Fatalf("Validate: %v (%T), want a *ValidationError", err, err)
			}
			if ve.Field != tt.field || ve.OrderID != o.ID {
				t.Errorf("order %q, field %q; want %q, %q", ve.OrderID, ve.Field, o.ID, tt.field)
			}
		})
	}
}

func TestValidationErrorText(t *testing.T) {
	o := valid()
	o.TotalCents = 1
	const want = "invalid order: total_cents is 1, the items add up to 2500"
	if got := o.Validate().Error(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
