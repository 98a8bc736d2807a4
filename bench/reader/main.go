// Command reader is what kconsume is measured against: the loop that people
// write with kafka-go's Reader, with a handler that does nothing.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/segmentio/kafka-go"
)

func main() {
	brokers := flag.String("brokers", "", "host:port, comma-separated")
	group := flag.String("group", "", "consumer group")
	topic := flag.String("topic", "", "topic")
	interval := flag.Duration("commit-interval", time.Second, "how often offsets are committed")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// Larger than the defaults where those would slow it down.
	err := consume(ctx, kafka.NewReader(kafka.ReaderConfig{
		Brokers:        strings.Split(*brokers, ","),
		GroupID:        *group,
		Topic:          *topic,
		StartOffset:    kafka.FirstOffset,
		MinBytes:       1,
		MaxBytes:       10 << 20,
		MaxWait:        2 * time.Second, // of an idle read, which is what Close waits for
		QueueCapacity:  1000,
		CommitInterval: *interval,
	}))
	if err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "reader:", err)
		os.Exit(1)
	}
}

func consume(ctx context.Context, r *kafka.Reader) (err error) {
	defer func() { err = errors.Join(err, r.Close()) }()
	for {
		m, err := r.FetchMessage(ctx)
		if err != nil {
			return fmt.Errorf("fetch message: %w", err)
		}
		if err := r.CommitMessages(ctx, m); err != nil {
			return fmt.Errorf("commit message: %w", err)
		}
	}
}
