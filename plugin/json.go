package plugin

import (
	"context"
	"encoding/json"
	"fmt"
)

// JSON is a handler that gets the record's value decoded from JSON. A value
// that cannot be decoded, null included, is a poison pill: permanent, with
// ReasonPoison.
func JSON[T any](handle func(context.Context, T, *Message) error) Handler {
	return HandlerFunc(func(ctx context.Context, m *Message) error {
		var v T
		if err := json.Unmarshal(m.Value, &v); err != nil {
			return poison(fmt.Errorf("decode JSON value of %d bytes: %w", len(m.Value), err), ruleJSON)
		}
		return handle(ctx, v, m)
	})
}
