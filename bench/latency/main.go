// Latency is a handler that writes down how long each record took to reach it:
// a value begins with the unix time in nanoseconds at which it was sent. Lines of
// that time and the nanoseconds since are appended to the file that LATENCY_LOG
// names.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/kconsume/kconsume/plugin"
)

func main() {
	file, err := os.OpenFile(os.Getenv("LATENCY_LOG"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		fmt.Fprintln(os.Stderr, "latency: LATENCY_LOG:", err)
		os.Exit(1)
	}
	var mu sync.Mutex
	log := bufio.NewWriterSize(file, 1<<20)
	go func() {
		for range time.Tick(time.Second) { // ends with the process
			mu.Lock()
			_ = log.Flush() // the bench sees what is missing
			mu.Unlock()
		}
	}()
	plugin.Serve(plugin.Config{Name: "latency", Version: "1"}, plugin.HandlerFunc(func(_ context.Context, m *plugin.Message) error {
		now := time.Now().UnixNano()
		var sent int64
		if _, err := fmt.Sscanf(string(m.Value[:min(len(m.Value), 20)]), "%d", &sent); err != nil {
			return plugin.Permanent(fmt.Errorf("read the time in a value: %w", err))
		}
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintln(log, sent, now-sent)
		return nil
	}))
}
