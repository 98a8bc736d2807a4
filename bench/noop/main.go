// Command noop is a handler that does nothing, for measuring what everything
// around a handler costs.
package main

import (
	"context"

	"github.com/kconsume/kconsume/plugin"
)

func main() {
	plugin.Serve(plugin.Config{Name: "noop", Version: "1"},
		plugin.HandlerFunc(func(context.Context, *plugin.Message) error { return nil }))
}
