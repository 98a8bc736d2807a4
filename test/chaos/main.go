// Command chaos proves what kconsume promises, on real Apache Kafka with real
// processes.
//
//	chaos   (default) members are killed and frozen, brokers stopped, leaders
//	        moved, retry topics forbidden, while a producer writes; then every
//	        acknowledged record is accounted for
//	deploy  three members are replaced one after another under load
//	parked  a million records wait in a tier: the daemon's memory
//	idle    100 partitions without a record: CPU, connections, goroutines
//	halved  a batch of 100 forwards with the broker stopped halfway
//
// It prints a table and exits with 1 if a promise was broken.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// settings are the command line.
type settings struct {
	mode              string
	kconsume, handler string // binaries
	duration          time.Duration
	members           int
	partitions        int
	rate              float64 // records a second
	records           int     // of parked
	delay             string  // of parked's tier
	rest              time.Duration
	seed              uint64
	keep              bool
	strict            bool // duplicates that no loss explains break a promise
}

func main() {
	var s settings
	flag.StringVar(&s.mode, "mode", "chaos", "chaos, deploy, parked, idle or halved")
	flag.StringVar(&s.kconsume, "kconsume", "", "kconsume's binary")
	flag.StringVar(&s.handler, "handler", "", "the handler's binary")
	flag.DurationVar(&s.duration, "duration", 15*time.Minute, "how long chaos and deploy write")
	flag.IntVar(&s.members, "members", 4, "members of chaos")
	flag.IntVar(&s.partitions, "partitions", 12, "partitions of the main topic of chaos and deploy")
	flag.Float64Var(&s.rate, "rate", 1250, "records a second that chaos and deploy write")
	flag.IntVar(&s.records, "records", 1_000_000, "records that parked parks")
	flag.StringVar(&s.delay, "delay", "10m", "the tier of parked")
	flag.DurationVar(&s.rest, "rest", time.Minute, "how long idle measures, and parked waits before it does")
	flag.Uint64Var(&s.seed, "seed", 0, "of the faults' order; 0 = a new one, which is printed")
	flag.BoolVar(&s.keep, "keep", false, "keep logs and journals, as after a broken promise")
	flag.BoolVar(&s.strict, "strict", false, "fail over duplicates in a partition that changed hands, or stayed, while nobody was killed or frozen")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := s.run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

// errBroken is the error of a run that found a broken promise; the table says which.
var errBroken = errors.New("a promise was broken")

func (s settings) run(ctx context.Context, out *os.File) error {
	modes := map[string]func(context.Context, settings, *os.File) error{
		"chaos": runChaos, "deploy": runDeploy, "parked": runParked, "idle": runIdle, "halved": runHalved,
	}
	mode, ok := modes[s.mode]
	if !ok {
		return fmt.Errorf("mode %q: one of chaos, deploy, parked, idle, halved", s.mode)
	}
	for name, path := range map[string]*string{"kconsume": &s.kconsume, "handler": &s.handler} {
		abs, err := filepath.Abs(*path)
		if err != nil || *path == "" {
			return fmt.Errorf("-%s: give the binary's path, as make chaos does", name)
		}
		*path = abs
	}
	return mode(ctx, s, out)
}

// terminal reports whether out is looked at by a person while it runs.
func terminal(out *os.File) bool {
	info, err := out.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
