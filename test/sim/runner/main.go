// Command runner plays simulated histories, seed by seed, on all processors, and
// tells what they went through. See package sim.
//
//	runner -seeds 500 -first 1     seeds 1 to 500; a first of 0 is a fresh one
//	runner -seeds 1 -first 17 -history    seed 17, with its history in any case
//	runner -planted                whether each planted bug is caught
//	runner -procs 2                other orders of events, at some cost
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"
)

func main() {
	var o options
	flag.IntVar(&o.seeds, "seeds", 100, "how many seeds to play; with -planted, at most how many for each bug")
	flag.Uint64Var(&o.first, "first", 0, "the first seed, 0 = a fresh one")
	flag.IntVar(&o.workers, "workers", runtime.NumCPU(), "processes at once")
	// With one processor goroutines hand over more cheaply; more of them bring
	// other orders of events.
	flag.IntVar(&o.procs, "procs", 1, "processors of each process")
	flag.BoolVar(&o.keep, "history", false, "save the histories of seeds that pass, too")
	planted := flag.Bool("planted", false, "plant bugs in the engine, one by one, and see each of them caught")
	only := flag.String("bug", "", "with -planted: this one only")
	flag.Parse()
	if o.first == 0 {
		o.first = uint64(time.Now().UnixMilli())
	}
	run := func() error { return playSeeds(o) }
	if *planted {
		run = func() error { return playPlanted(o, *only) }
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// options are the command's.
type options struct {
	seeds   int
	first   uint64
	workers int
	procs   int
	keep    bool
}

// dir is where binaries and histories go, below the module's root, where make
// runs this.
func dir() (string, error) {
	d, err := filepath.Abs(filepath.Join("build", "sim"))
	if err != nil {
		return "", err
	}
	return d, os.MkdirAll(d, 0o755)
}

// playSeeds plays the seeds and prints the sum.
func playSeeds(o options) error {
	d, err := dir()
	if err != nil {
		return err
	}
	binary, err := build(d, "sim.test", "")
	if err != nil {
		return err
	}
	fmt.Printf("seeds %d to %d, %d at once\n", o.first, o.first+uint64(o.seeds)-1, o.workers)
	begin := time.Now()
	sum := newSum()
	f := &farm{binary: binary, dir: d, keep: o.keep, workers: o.workers, procs: o.procs}
	f.play(o.first, o.seeds, func(r outcome) bool {
		sum.add(r)
		return true
	})
	sum.print(time.Since(begin), f.maxRSS())
	if idle := sum.idle(); len(idle) > 0 {
		return fmt.Errorf("faults that acted on nothing: %v", idle)
	}
	if len(sum.failed) > 0 {
		return fmt.Errorf("%d of %d seeds failed", len(sum.failed), o.seeds)
	}
	return nil
}
