// Command line measures the whole line of a record on real Kafka: kconsume with
// a handler that does nothing, next to a loop on kafka-go's Reader, in turns, on
// the same topic, each as a process of its own.
//
// A run is timed from the first committed offset that is seen to the last, so
// starting and joining the group do not count; both commit every 100 ms, which
// is how exact it is.
//
// With -watched it measures what being watched costs instead: kconsume with
// nothing, with metrics that are read every second, and besides those with
// traces of one delivery of a hundred, and of all.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/kconsume/kconsume/test/kafka"
)

// settings are the command line.
type settings struct {
	kconsume, reader, handler string
	records, partitions, size int
	pairs                     int
	extra                     string
	verbose, watch            bool
}

// commitInterval is the same for both.
const commitInterval = "100ms"

func main() {
	var s settings
	flag.StringVar(&s.kconsume, "kconsume", "", "kconsume's binary; without it only the Reader is measured")
	flag.StringVar(&s.reader, "reader", "", "the Reader loop's binary")
	flag.StringVar(&s.handler, "handler", "", "the no-op handler's binary")
	flag.IntVar(&s.records, "records", 1_000_000, "records in the topic")
	flag.IntVar(&s.partitions, "partitions", 12, "partitions of the topic")
	flag.IntVar(&s.size, "size", 1024, "bytes of a value")
	flag.IntVar(&s.pairs, "pairs", 3, "runs of each")
	flag.StringVar(&s.extra, "args", "", "further arguments of kconsume run, space-separated")
	flag.BoolVar(&s.watch, "watched", false, "measure kconsume without and with metrics and traces, and not the Reader")
	flag.BoolVar(&s.verbose, "v", false, "show what the programs print")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := s.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "line:", err)
		os.Exit(1)
	}
}

func (s settings) run(ctx context.Context) (err error) {
	c, err := kafka.Open(ctx, kafka.Options{Benchmark: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	const topic = "line"
	began := time.Now()
	if err := load(ctx, c, topic, s); err != nil {
		return err
	}
	fmt.Printf("%d records of %d bytes in %d partitions, written in %.1f s\n",
		s.records, s.size, s.partitions, time.Since(began).Seconds())
	dir, err := os.MkdirTemp("", "kconsume-line-")
	if err != nil {
		return fmt.Errorf("make scratch folder: %w", err)
	}
	defer os.RemoveAll(dir)

	collector, err := openSink()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, collector.close()) }()
	var results []result
	for pair := range s.pairs {
		programs, err := s.programs(c.Bootstrap(), topic, dir, collector.address, pair)
		if err != nil {
			return err
		}
		for _, p := range programs {
			r, err := p.measure(ctx, c.Bootstrap(), topic, s)
			if err != nil {
				return fmt.Errorf("measure %s: %w", p.name, err)
			}
			results = append(results, r)
		}
	}
	return printTable(os.Stdout, results, s.watch)
}

// programs are those of one pair, each with a group of its own.
func (s settings) programs(brokers, topic, dir, collector string, pair int) ([]program, error) {
	if s.watch {
		return s.watched(brokers, topic, dir, collector, pair)
	}
	reader := program{name: "reader", group: fmt.Sprintf("reader-%d", pair), path: s.reader}
	reader.args = []string{"-brokers", brokers, "-group", reader.group, "-topic", topic, "-commit-interval", commitInterval}
	if s.kconsume == "" {
		return []program{reader}, nil
	}
	own := s.kconsumeRun(brokers, topic, dir, fmt.Sprintf("kconsume-%d", pair))
	own.args = append(own.args, "--metrics", "")
	return []program{reader, own}, nil
}

// kconsumeRun is kconsume as a group, without a word about its metrics.
func (s settings) kconsumeRun(brokers, topic, dir, group string) program {
	own := program{name: "kconsume", group: group, path: s.kconsume}
	own.args = append([]string{"run", "--brokers", brokers, "--group", own.group, "--topic", topic,
		"--handler", absolute(s.handler), "--commit-interval", commitInterval, "--log-level", "warn",
		"--admin", "unix:" + filepath.Join(dir, own.group+".sock"),
	}, strings.Fields(s.extra)...)
	own.env = []string{"STATE_DIRECTORY=" + dir, "RUNTIME_DIRECTORY=" + dir}
	return own
}

// absolute makes sure that a handler's file is not looked up as a name.
func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}
