// Command board shows the dashboard as the person on call sees it while a
// version of a handler that fails is rolled out: two daemons of one group on
// real Kafka, records all the time, a real Prometheus. A third of the time all
// is well; then the handler's file is replaced, at one daemon after the other;
// a third later it is put back.
//
// Grafana itself is not needed: every panel of the dashboard's file is asked of
// the Prometheus and drawn at its place with its title, unit, legend, colours
// and thresholds, in a real Chromium. What the file says and the program cannot
// draw is an error.
//
// With -again nothing runs but a Prometheus on what the last run kept, for
// whoever changes the dashboard.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// settings are the command line.
type settings struct {
	sources   string // folder of this repository
	dashboard string
	rules     string
	picture   string
	kept      string        // folder: what Prometheus stored, the window, the page, the chart library
	window    time.Duration // of the story
	at        time.Duration // how far into it the picture is taken; 0 = at its end
	rows      int           // of the grid that the picture shows; 0 = all
	rate      int           // records a second
	again     bool
}

func main() {
	// The kernel ties what is started here to the thread that started it, see processes.
	runtime.LockOSThread()
	var s settings
	minutes := flag.Float64("minutes", 6, "how long the story is; a third of it is the failing version's")
	flag.StringVar(&s.sources, "sources", ".", "folder of this repository")
	flag.StringVar(&s.dashboard, "dashboard", "packaging/grafana/kconsume.json", "the dashboard's file")
	flag.StringVar(&s.rules, "rules", "packaging/prometheus/kconsume.rules.yml", "the alerts' file")
	flag.StringVar(&s.picture, "picture", "docs/img/dashboard.png", "where the picture goes")
	flag.StringVar(&s.kept, "keep", "build/board", "folder for what -again needs")
	flag.DurationVar(&s.at, "at", 0, "time into the story at which the picture is taken; 0 = its end")
	flag.IntVar(&s.rows, "rows", 0, "rows of the grid that the picture shows, each 38 pixels; 0 = all")
	flag.IntVar(&s.rate, "rate", 200, "records a second")
	flag.BoolVar(&s.again, "again", false, "draw what the last run kept")
	flag.Parse()
	s.window = time.Duration(*minutes * float64(time.Minute))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := s.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "board:", err)
		os.Exit(1)
	}
}

func (s settings) run(ctx context.Context) (err error) {
	for _, path := range []*string{&s.sources, &s.dashboard, &s.rules, &s.picture, &s.kept} {
		if *path, err = filepath.Abs(*path); err != nil {
			return fmt.Errorf("find %s: %w", *path, err)
		}
	}
	dir, err := os.MkdirTemp("", "kc-board-")
	if err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	all := &processes{logs: dir}
	defer func() {
		all.stop()
		if err == nil {
			err = os.RemoveAll(dir)
		} else {
			err = fmt.Errorf("%w\nthe logs are in %s", err, dir)
		}
	}()
	var p *prometheus
	if s.again {
		p, err = resume(ctx, all, s)
	} else {
		p, err = play(ctx, all, s, dir)
	}
	if err != nil {
		return err
	}
	return s.draw(ctx, p)
}

// until asks again and again. The bound only keeps a broken run from hanging.
func until(ctx context.Context, what string, ok func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for !ok() {
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return fmt.Errorf("wait until %s: %w", what, err)
		}
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
