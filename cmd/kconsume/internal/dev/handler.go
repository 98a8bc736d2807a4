package dev

import (
	"github.com/kconsume/kconsume/plugin"
	"github.com/kconsume/kconsume/plugins/examples/orders/handler"
	"github.com/kconsume/kconsume/plugins/examples/orders/payment"
	"github.com/kconsume/kconsume/plugins/examples/orders/store"
)

const (
	// HandlerCommand is the hidden command that runs this executable as the
	// sample handler.
	HandlerCommand = "dev-handler"
	// gatewayEnv tells a handler where the payment gateway is.
	gatewayEnv = "PAYMENTS_URL"
	// keptOrders bounds the sample handler's memory.
	keptOrders = 10_000
)

// ServeHandler is the sample handler: the orders example with its store in
// memory. It is called by HandlerCommand, and ends the process.
func ServeHandler(version string, getenv func(string) string) {
	gateway := payment.NewClient(getenv(gatewayEnv))
	plugin.Serve(plugin.Config{
		Name:        "dev-orders",
		Version:     version,
		Topics:      []string{DefaultTopic},
		Classifiers: []plugin.Classifier{handler.Classify},
	}, handler.New(gateway, store.NewMemory(keptOrders)))
}
