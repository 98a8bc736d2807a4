package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// mutant is the text of the bug's file below root, with the bug in it.
func (b bug) mutant(root string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(root, b.file))
	if err != nil {
		return nil, fmt.Errorf("plant %q: %w", b.name, err)
	}
	if n := strings.Count(string(text), b.old); n != 1 {
		return nil, fmt.Errorf("plant %q: its text is in %s %d times, not once: the engine has changed, plant it anew", b.name, b.file, n)
	}
	return []byte(strings.Replace(string(text), b.old, b.new, 1)), nil
}

// plant writes the bug's file beside the engine and returns the overlay that has
// the compiler take it.
func (b bug) plant(dir string) (overlay string, err error) {
	text, err := b.mutant(".")
	if err != nil {
		return "", err
	}
	original, err := filepath.Abs(b.file)
	if err != nil {
		return "", fmt.Errorf("plant %q: %w", b.name, err)
	}
	mutant := filepath.Join(dir, "planted.go.txt")
	if err := os.WriteFile(mutant, text, 0o644); err != nil {
		return "", fmt.Errorf("plant %q: %w", b.name, err)
	}
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {original: mutant}})
	if err != nil {
		return "", fmt.Errorf("plant %q: %w", b.name, err)
	}
	overlay = filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, replace, 0o644)
}

// plantedSeeds is how many seeds a planted bug may take at most.
const plantedSeeds = 50

// playPlanted plants each bug by itself and plays seeds until one fails.
func playPlanted(o options, only string) error {
	d, err := dir()
	if err != nil {
		return err
	}
	o.seeds = min(o.seeds, plantedSeeds)
	sound, err := build(d, "sim.test", "")
	if err != nil {
		return err
	}
	fmt.Printf("seeds from %d on, at most %d for each bug\n", o.first, o.seeds)
	var missed []error
	for _, b := range bugs() {
		if only != "" && only != b.name {
			continue
		}
		begin := time.Now()
		overlay, err := b.plant(d)
		if err != nil {
			return err
		}
		binary, err := build(d, "planted.test", overlay)
		if err != nil {
			return fmt.Errorf("plant %q: %w", b.name, err)
		}
		n, why := o.catch(binary, d)
		if why != "" {
			if _, also := (options{first: o.first + uint64(n) - 1, seeds: 1}).catch(sound, d); also != "" {
				return fmt.Errorf("seed %d fails without a planted bug, too: see to that first: %s", o.first+uint64(n)-1, also)
			}
		}
		took := time.Since(begin).Round(100 * time.Millisecond)
		if why == "" {
			fmt.Printf("MISSED  %-58s in %d seeds, %v\n", b.name, n, took)
			missed = append(missed, fmt.Errorf("%q was not caught in %d seeds", b.name, n))
			continue
		}
		fmt.Printf("caught  %-58s after %2d seeds, %v\n          %s\n", b.name, n, took, why)
	}
	return errors.Join(missed...)
}

// catch plays seeds in order until one fails, and tells how many it took.
func (o options) catch(binary, dir string) (n int, why string) {
	f := &farm{binary: binary, dir: dir, workers: 1, procs: o.procs}
	f.play(o.first, o.seeds, func(r outcome) bool {
		n++
		if r.failed() {
			why = strings.TrimSpace(r.why())
			if len(why) > 160 {
				why = why[:160] + "…"
			}
		}
		return why == ""
	})
	return n, why
}
