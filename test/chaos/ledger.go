package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kconsume/kconsume/test/chaos/journal"
)

// ledger follows the handlers' journals while they are written and keeps every
// delivery. One goroutine, follow, reads; mu guards what others ask.
type ledger struct {
	dir    string
	stages []string // names: main first
	files  []*journalFile

	mu         sync.Mutex
	deliveries []delivery
	procs      []handlerProc
	watches    []*watch
	dirty      []string // what of the journals could not be read
}

// journalFile is one journal and how far it was read.
type journalFile struct {
	f    *os.File
	proc int32
	rest []byte          // a line's begin
	open map[int64]int32 // calls without an end, by number
	idle int             // rounds without news
}

const (
	followEvery = 25 * time.Millisecond
	lookEvery   = 8  // rounds between looks for new files
	idleRounds  = 40 // after which a file is only looked at along with the folder
)

func newLedger(dir string, stages []string) *ledger { return &ledger{dir: dir, stages: stages} }

// follow reads the journals until ctx ends, and once more then.
func (l *ledger) follow(ctx context.Context) error {
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for round := 0; ; round++ {
		last := ctx.Err() != nil
		all := last || round%lookEvery == 0
		if all {
			if err := l.look(); err != nil {
				return err
			}
		}
		for _, j := range l.files {
			if all || j.idle < idleRounds {
				if err := l.read(j); err != nil {
					return err
				}
			}
		}
		if last {
			return l.close()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

func (l *ledger) close() error {
	var errs []error
	for _, j := range l.files {
		errs = append(errs, j.f.Close())
	}
	return errors.Join(errs...)
}

// look opens journals that are new: LIFE.PID, where a life has a dot itself.
func (l *ledger) look() error {
	names, err := filepath.Glob(filepath.Join(l.dir, "*"))
	if err != nil {
		return fmt.Errorf("look for journals: %w", err)
	}
	for _, name := range names {
		if slices.ContainsFunc(l.files, func(j *journalFile) bool { return j.f.Name() == name }) {
			continue
		}
		f, err := os.Open(name)
		if err != nil {
			return fmt.Errorf("open journal: %w", err)
		}
		base := filepath.Base(name)
		cut := strings.LastIndexByte(base, '.')
		pid, err := strconv.Atoi(base[cut+1:])
		if cut < 0 || err != nil {
			f.Close()
			return fmt.Errorf("open journal %s: its name is not LIFE.PID", name)
		}
		l.mu.Lock()
		l.files = append(l.files, &journalFile{f: f, proc: int32(len(l.procs)), open: map[int64]int32{}})
		l.procs = append(l.procs, handlerProc{life: base[:cut], pid: pid})
		l.mu.Unlock()
	}
	return nil
}

// read takes what a journal has grown by.
func (l *ledger) read(j *journalFile) error {
	news, err := io.ReadAll(j.f)
	if err != nil {
		return fmt.Errorf("read journal: %w", err)
	}
	if len(news) == 0 {
		j.idle++
		return nil
	}
	j.idle = 0
	text := append(j.rest, news...)
	whole := bytes.LastIndexByte(text, '\n') + 1
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range bytes.Lines(text[:whole]) {
		l.take(j, line[:len(line)-1])
	}
	j.rest = append([]byte(nil), text[whole:]...)
	return nil
}

// take notes one line. It is called with mu held.
func (l *ledger) take(j *journalFile, line []byte) {
	b, e, err := journal.Parse(line)
	switch {
	case err != nil:
		l.dirty = append(l.dirty, err.Error())
	case b != nil:
		j.open[b.Call] = int32(len(l.deliveries))
		d := delivery{
			begin: b.At, offset: b.Offset, number: b.Number, proc: j.proc,
			partition: b.Partition, attempt: int16(b.Attempt), stage: int16(slices.Index(l.stages, b.Stage)),
		}
		l.deliveries = append(l.deliveries, d)
		l.procs[j.proc].calls++
		for _, w := range l.watches {
			w.delivered(&d, b.Written)
		}
	default:
		i, ok := j.open[e.Call]
		if !ok {
			l.dirty = append(l.dirty, fmt.Sprintf("%s: %q ends a call that never began", j.f.Name(), line))
			return
		}
		delete(j.open, e.Call)
		l.deliveries[i].end, l.deliveries[i].outcome = e.At, e.Outcome
	}
}

// acknowledged tells that a batch of a partition was acknowledged to the producer.
func (l *ledger) acknowledged(partition int, written int64) {
	now := time.Now().UnixNano()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.watches {
		w.acknowledged(partition, written, now)
	}
}

func (l *ledger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.deliveries)
}

// of is how many deliveries a member's life has had.
func (l *ledger) of(life string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for i := range l.procs {
		if l.procs[i].life == life {
			n += l.procs[i].calls
		}
	}
	return n
}
