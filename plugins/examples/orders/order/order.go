// Package order is what the shop means by a confirmed order. It knows nothing
// of Kafka, HTTP or databases.
package order

import "fmt"

// Order is one confirmed order, as the checkout publishes it.
type Order struct {
	ID         string `json:"order_id"`
	Customer   string `json:"customer"`
	Currency   string `json:"currency"`    // ISO 4217, such as "EUR"
	TotalCents int64  `json:"total_cents"` // what the customer agreed to pay
	Items      []Item `json:"items"`
}

// Item is one line of an order.
type Item struct {
	SKU        string `json:"sku"`
	Quantity   int64  `json:"quantity"`
	PriceCents int64  `json:"price_cents"` // of one piece
}

// Limits of what a person orders in a shop. Beyond them sums could overflow,
// and somebody should look at it anyway.
const (
	maxItems    = 1_000
	maxQuantity = 1_000_000
	maxCents    = 1_000_000_000
)

// ValidationError says which rule an order breaks. Trying again cannot mend it.
// Its text leaves the order's id out, so that the same mistake reads the same.
type ValidationError struct {
	OrderID string
	Field   string // its name in the JSON, such as "items[2].quantity"
	Problem string
}

func (e *ValidationError) Error() string {
	return fmt.Sprintf("invalid order: %s %s", e.Field, e.Problem)
}

// Validate returns nil or a *ValidationError that names the first broken rule.
func (o *Order) Validate() error {
	switch {
	case o.ID == "":
		return o.invalid("order_id", "is missing")
	case o.Customer == "":
		return o.invalid("customer", "is missing")
	case !isCurrency(o.Currency):
		return o.invalid("currency", "is %q, not three capital letters", o.Currency)
	case len(o.Items) == 0:
		return o.invalid("items", "is empty")
	case len(o.Items) > maxItems:
		return o.invalid("items", "has %d entries, %d are allowed", len(o.Items), maxItems)
	}
	sum, err := o.sum()
	if err != nil {
		return err
	}
	if sum != o.TotalCents {
		return o.invalid("total_cents", "is %d, the items add up to %d", o.TotalCents, sum)
	}
	return nil
}

// sum adds the items up; the limits keep it far below an overflow.
func (o *Order) sum() (int64, error) {
	var sum int64
	for i, it := range o.Items {
		field := fmt.Sprintf("items[%d]", i)
		switch {
		case it.SKU == "":
			return 0, o.invalid(field+".sku", "is missing")
		case it.Quantity < 1 || it.Quantity > maxQuantity:
			return 0, o.invalid(field+".quantity", "is %d, 1 to %d are allowed", it.Quantity, maxQuantity)
		case it.PriceCents < 0 || it.PriceCents > maxCents:
			return 0, o.invalid(field+".price_cents", "is %d, 0 to %d are allowed", it.PriceCents, maxCents)
		}
		sum += it.Quantity * it.PriceCents
	}
	return sum, nil
}

func (o *Order) invalid(field, format string, args ...any) error {
	return &ValidationError{OrderID: o.ID, Field: field, Problem: fmt.Sprintf(format, args...)}
}

func isCurrency(s string) bool {
	if len(s) != 3 {
		return false
	}
	for i := range len(s) {
		if s[i] < 'A' || s[i] > 'Z' {
			return false
		}
	}
	return true
}
