package plugintest_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kconsume/kconsume/plugin"
	"github.com/kconsume/kconsume/plugin/plugintest"
)

type order struct {
	ID    string
	Cents int
}

var errGatewayAway = errors.New("gateway away")

// charge is the handler of these examples.
func charge(_ context.Context, o order, m *plugin.Message) error {
	switch {
	case o.Cents == 0:
		return plugin.Drop("nothing to pay")
	case o.Cents < 0:
		return fmt.Errorf("order %s: negative total", o.ID)
	case o.ID == "1013":
		return plugin.RetryAfter(errGatewayAway, time.Minute)
	}
	m.Emit(plugin.Record{Topic: "orders.paid", Key: []byte(o.ID)})
	return nil
}

// stdout stands in for the *testing.T that a test has.
type stdout struct{ cleanups []func() }

func (s *stdout) Helper()                           {}
func (s *stdout) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }
func (s *stdout) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (s *stdout) Cleanup(f func())                  { s.cleanups = append(s.cleanups, f) }
func (s *stdout) end() {
	for _, f := range s.cleanups {
		f()
	}
}

func ExampleNew() {
	t := new(stdout) // in a test: t *testing.T
	defer t.end()

	h := plugintest.New(t, plugin.JSON(charge))

	h.Deliver(h.JSON(order{ID: "1001", Cents: 500})).WantEmitted(plugin.Record{Topic: "orders.paid", Key: []byte("1001")})
	h.Deliver(h.JSON(order{ID: "1002"})).WantDrop("nothing to pay")
	h.Deliver(h.JSON(order{ID: "1013", Cents: 500})).WantRetryAfter(time.Minute)
	h.Deliver(h.Record("{")).WantPoison()

	// What fails a test tells all there is to tell.
	h.Deliver(h.JSON(order{ID: "1003", Cents: -1})).WantTransient()
	// Output:
	// verdict on test/0@4
	//   want transient
	//   got  permanent by rule "unknown"
	//   message: order 1003: negative total
}

// The handler as main gives it to Serve, with its own rules for errors.
func ExampleWithConfig() {
	t := new(stdout)
	defer t.end()

	config := plugin.Config{
		Name:   "orders",
		Topics: []string{"orders.confirmed"},
		Classifiers: []plugin.Classifier{func(err error) (plugin.Verdict, bool) {
			return plugin.Verdict{Class: plugin.ClassTransient}, errors.Is(err, errGatewayAway)
		}},
	}
	h := plugintest.New(t, plugin.HandlerFunc(func(context.Context, *plugin.Message) error {
		return fmt.Errorf("charge: %w", errGatewayAway)
	}), plugintest.WithConfig(config))

	fmt.Println(h.Deliver(h.Record("")).WantTransient())
	// Output: transient by rule "classifier"
}

// Records delivered at once come to a BatchHandler as one batch.
func ExampleHandler_DeliverAll() {
	t := new(stdout)
	defer t.end()

	h := plugintest.New(t, plugin.Batches(plugin.BatchHandlerFunc(func(_ context.Context, b *plugin.Batch) error {
		fmt.Println("a batch of", len(b.Messages))
		for i, m := range b.Messages {
			if len(m.Value) == 0 {
				b.Fail(i, plugin.Permanent(errors.New("empty")))
			}
		}
		return nil
	}), plugin.BatchConfig{Max: 100}))

	for _, v := range h.DeliverAll(h.Record("a"), h.Record(""), h.Record("c")) {
		fmt.Println(v)
	}
	// Output:
	// a batch of 3
	// ack
	// permanent by rule "explicit"
	// ack
}

// A delivery past its deadline, one that is cancelled, and a drain.
func ExampleHandler_Send() {
	t := new(stdout)
	defer t.end()

	handler := plugin.HandlerFunc(func(ctx context.Context, m *plugin.Message) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-plugin.Draining(ctx):
			return nil
		}
	})
	h := plugintest.New(t, handler, plugintest.WithTimeout(10*time.Millisecond))
	fmt.Println(h.Deliver(h.Record("")).WantTimeout().Reason)

	h = plugintest.New(t, handler)
	d := h.Send(h.Record("first"), h.Record("second"))
	d[0].Cancel()
	fmt.Println(d[0].Verdict())
	h.Drain()
	fmt.Println(d[1].Verdict())
	// Output:
	// timeout
	// cancelled
	// ack
}

// A repeated delivery is the same record once more.
func ExampleHandler_Record() {
	t := new(stdout)
	defer t.end()

	h := plugintest.New(t, plugin.HandlerFunc(func(_ context.Context, m *plugin.Message) error {
		fmt.Println(m.ID, m.Stage, m.Attempt)
		return nil
	}))
	m := h.Record("x")
	h.Deliver(m)
	m.Attempt, m.Stage = 2, "retry.5s"
	h.Deliver(m)
	// Output:
	// test/0/0@1767225600000 main 1
	// test/0/0@1767225600000 retry.5s 2
}
