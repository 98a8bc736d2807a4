package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/kconsume/kconsume/test/sim"
)

// build compiles the simulation, with files of the engine replaced if there is
// an overlay, and returns the binary's path.
func build(dir, name, overlay string) (string, error) {
	binary := filepath.Join(dir, name)
	args := []string{"test", "-c", "-o", binary}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	cmd := exec.Command("go", append(args, "./test/sim")...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the simulation: %w\n%s", err, out)
	}
	return binary, nil
}

// outcome is what came of one seed.
type outcome struct {
	sim.Result
	broken string // the worker died or hung, with this
}

func (o *outcome) failed() bool { return len(o.Violations) > 0 || o.broken != "" }

// why is the first thing that went wrong.
func (o *outcome) why() string {
	if o.broken != "" {
		return o.broken
	}
	return o.Violations[0]
}

// farm plays seeds in processes: one that dies or hangs takes one seed with it.
type farm struct {
	binary, dir string
	keep        bool
	workers     int
	procs       int // processors of each worker

	rss atomic.Int64 // of the largest worker, KiB
}

// play plays n seeds and hands each outcome to see, one at a time, until that
// returns false.
func (f *farm) play(first uint64, n int, see func(outcome) bool) {
	seeds := make(chan uint64)
	stop := make(chan struct{})
	var once sync.Once
	var mu sync.Mutex
	var all sync.WaitGroup
	for range min(f.workers, n) {
		all.Go(func() {
			f.worker(seeds, func(o outcome) {
				mu.Lock()
				defer mu.Unlock()
				select {
				case <-stop:
				default:
					if !see(o) {
						once.Do(func() { close(stop) })
					}
				}
			})
		})
	}
	for i := range n {
		select {
		case seeds <- first + uint64(i):
			continue
		case <-stop:
		}
		break
	}
	close(seeds)
	all.Wait()
}

// worker plays seeds in a process, and in another one when that ends.
func (f *farm) worker(seeds <-chan uint64, see func(outcome)) {
	var p *process
	defer func() {
		if p != nil {
			f.note(p.end())
		}
	}()
	for seed := range seeds {
		if p == nil {
			var err error
			if p, err = f.start(); err != nil {
				see(outcome{Result: sim.Result{Seed: seed}, broken: err.Error()})
				continue
			}
		}
		o, err := p.play(seed)
		if err != nil {
			f.note(p.end())
			path := filepath.Join(f.dir, fmt.Sprintf("seed-%d.err", seed))
			_ = os.WriteFile(path, []byte(p.errors.String()), 0o644)
			o = outcome{Result: sim.Result{Seed: seed, History: path}, broken: fmt.Sprintf("%v: %s", err, p.firstLine())}
			p = nil
		}
		see(o)
	}
}

func (f *farm) note(rss int64) {
	for {
		old := f.rss.Load()
		if rss <= old || f.rss.CompareAndSwap(old, rss) {
			return
		}
	}
}

func (f *farm) maxRSS() int64 { return f.rss.Load() }

// process is a running worker.
type process struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	lines  chan []byte
	errors strings.Builder // what it wrote to stderr; read it when the process has ended
}

func (f *farm) start() (*process, error) {
	p := &process{cmd: exec.Command(f.binary, "-test.run", "^TestWorker$", "-test.timeout", "0"), lines: make(chan []byte)}
	p.cmd.Env = append(os.Environ(), "KCONSUME_SIM_DIR="+f.dir, "GOMAXPROCS="+strconv.Itoa(f.procs), "GOTRACEBACK=all")
	if f.keep {
		p.cmd.Env = append(p.cmd.Env, "KCONSUME_SIM_KEEP=1")
	}
	p.cmd.Stderr = &p.errors
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start a worker: %w", err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start a worker: %w", err)
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a worker: %w", err)
	}
	go p.read(out)
	return p, nil
}

// read takes the results; what else the worker says goes to its errors.
func (p *process) read(out io.Reader) {
	defer close(p.lines)
	s := bufio.NewScanner(out)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		if line, ok := strings.CutPrefix(s.Text(), "result "); ok {
			p.lines <- []byte(line)
		}
	}
}

// What one seed may take, which needs about a second: so much processor time, and
// so long without any. One that hangs holds up virtual time.
const (
	seedLimit = 20 * time.Second
	seedIdle  = 60 * time.Second
	seedLook  = 5 * time.Second // how often that is looked at
)

func (p *process) play(seed uint64) (o outcome, err error) {
	if _, err := io.WriteString(p.in, strconv.FormatUint(seed, 10)+"\n"); err != nil {
		return o, errors.New("the worker died")
	}
	begin := p.used()
	last, since := begin, time.Now()
	for {
		select {
		case line, ok := <-p.lines:
			if !ok {
				return o, errors.New("the worker died")
			}
			return o, json.Unmarshal(line, &o.Result)
		case <-time.After(seedLook):
		}
		if now := p.used(); now != last {
			last, since = now, time.Now()
		}
		if last-begin > seedLimit || time.Since(since) > seedIdle {
			_ = p.cmd.Process.Signal(syscall.SIGQUIT) // its goroutines go to its errors
			return o, fmt.Errorf("no end after %v of processor time", last-begin)
		}
	}
}

// used is how much processor time the worker has had; 0 = the system does not
// tell.
func (p *process) used() time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	const user, system, tick = 11, 12, 10 * time.Millisecond // fields behind the name in brackets
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) <= system {
		return 0
	}
	u, _ := strconv.ParseInt(fields[user], 10, 64)
	s, _ := strconv.ParseInt(fields[system], 10, 64)
	return time.Duration(u+s) * tick
}

// end lets the worker end, and returns the most memory that it had, in KiB.
func (p *process) end() int64 {
	_ = p.in.Close()
	for range p.lines { // until it has closed its end
	}
	_ = p.cmd.Wait()
	if u, ok := p.cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		return u.Maxrss
	}
	return 0
}

// firstLine is where the reason of a crash stands; who was killed from outside
// wrote none.
func (p *process) firstLine() string {
	line, _, _ := strings.Cut(strings.TrimSpace(p.errors.String()), "\n")
	return cmp.Or(line, p.cmd.ProcessState.String())
}
