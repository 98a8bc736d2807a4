package host_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/kconsume/kconsume/plugin"
)

// What a hostile handler is told: which one it is, where it notes what it did,
// which of its lives misbehaves at the start, and how much a flood is.
const (
	hostileMode  = "HOSTILE_MODE"
	hostileDir   = "HOSTILE_DIR"
	hostileLife  = "HOSTILE_LIFE"
	hostileFlood = "HOSTILE_FLOOD"
)

// What the value of a record asks of a hostile handler.
const (
	good = "good" // acknowledge it
	exit = "exit" // exit, the first time
	bad  = "bad"  // do what the mode says, the first time
)

// TestHostileProcess is no test: the host starts this binary with it as a
// handler.
func TestHostileProcess(*testing.T) {
	mode := os.Getenv(hostileMode)
	if mode == "" {
		return
	}
	a := &actor{mode: mode, dir: os.Getenv(hostileDir), stdout: os.Stdout}
	a.flood, _ = strconv.Atoi(os.Getenv(hostileFlood))
	a.play()
	os.Exit(0)
}

// actor is one life of a hostile handler.
type actor struct {
	mode   string
	dir    string
	stdout *os.File // as it was before the SDK took it
	flood  int      // bytes
	life   int      // 1 = the first
	calls  atomic.Int64
}

func (a *actor) play() {
	for a.life = 1; !a.first("life-" + strconv.Itoa(a.life)); a.life++ {
	}
	if begin := starts()[a.mode]; begin != nil && strconv.Itoa(a.life) == os.Getenv(hostileLife) {
		a.first("did")
		begin(a)
	}
	if lie, ok := lies()[a.mode]; ok {
		a.lie(lie)
		return
	}
	version := "1"
	if a.mode == "kills under other names" {
		version = strconv.Itoa(a.life)
	}
	plugin.Serve(plugin.Config{Name: "hostile", Version: version}, plugin.HandlerFunc(a.handle))
}

// first reports whether nobody has made the note yet, and makes it, with our
// process id in it.
func (a *actor) first(note string) bool {
	f, err := os.OpenFile(filepath.Join(a.dir, note), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return false
	}
	defer f.Close()
	fmt.Fprint(f, os.Getpid())
	return true
}

// acknowledges notes that we are about to acknowledge a record.
func (a *actor) acknowledges(offset int64) {
	f, err := os.OpenFile(filepath.Join(a.dir, "acknowledged"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	fmt.Fprintln(f, offset)
}

// handle is the SDK's handler.
func (a *actor) handle(ctx context.Context, m *plugin.Message) error {
	switch value := string(m.Value); {
	case value == exit && a.first("exited"):
		os.Exit(3)
	case value == bad && calls()[a.mode] != nil && a.first("did"):
		if err := calls()[a.mode](a, ctx); err != nil {
			return err
		}
	default:
		if always := habits()[a.mode]; always != nil {
			always(a, m)
		}
	}
	a.acknowledges(m.Offset)
	return nil
}

// starts are what modes do instead of a good start. Those that return go on
// with a good one.
func starts() map[string]func(a *actor) {
	return map[string]func(a *actor){
		"exits at once": func(*actor) {
			fmt.Fprintln(os.Stderr, "cannot read \x1b[31mthe\u202e configuration\xff")
			os.Exit(7)
		},
		"killed at once": func(*actor) { die(unix.SIGKILL) },
		"garbage": func(a *actor) {
			fmt.Fprint(a.stdout, "\x00\xff{}\n1|2\n|||||\n")
			select {}
		},
		"no end of line": func(a *actor) {
			fmt.Fprint(a.stdout, a.line("1", socketPath())) // and no line end
			select {}
		},
		"closes stdout": func(a *actor) {
			a.stdout.Close()
			select {}
		},
		"late": func(a *actor) {
			time.Sleep(30 * time.Second)
			a.tell(a.line("1", a.dir+"/s"))
			select {}
		},
		"core protocol": func(a *actor) { a.tell(strings.Replace(a.line("1", a.dir+"/s"), "1|", "2|", 1)) },
		"app protocol":  func(a *actor) { a.tell(a.line("7", a.dir+"/s")) },
		"tcp":           func(a *actor) { a.tell("1|1|tcp|127.0.0.1:1|grpc|") },
		"netrpc":        func(a *actor) { a.tell(strings.Replace(a.line("1", socketPath()), "grpc", "netrpc", 1)) },
		"few fields":    func(a *actor) { a.tell("1|1|unix|" + socketPath()) },
		"elsewhere":     func(a *actor) { a.tell(a.line("1", "/run/another.sock")) },
		"climbs out":    func(a *actor) { a.tell(a.line("1", filepath.Dir(socketPath())+"/../another.sock")) },
		"no socket":     func(a *actor) { a.tell(a.line("1", socketPath())) },
		"never accepts": func(a *actor) {
			listenAt(socketPath())
			a.tell(a.line("1", socketPath()))
		},
		"speaks HTTP": func(a *actor) {
			l := listenAt(socketPath())
			fmt.Fprintln(a.stdout, a.line("1", socketPath()))
			for {
				c, err := l.Accept()
				if err != nil {
					panic(err)
				}
				io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n")
				c.Close()
			}
		},
		"no Hello":       func(a *actor) { a.lie(lie{frame: true}) },
		"silent":         func(a *actor) { a.lie(lie{silent: true}) },
		"hangs up first": func(a *actor) { a.lie(lie{ends: true}) },
		"no such service": func(a *actor) {
			a.lie(lie{stranger: true})
		},
		"no TLS":        func(a *actor) { a.lie(lie{}) },
		"another's TLS": func(a *actor) { a.lie(lie{impostor: true}) },
		"garbage first": func(a *actor) {
			fmt.Fprint(a.stdout, "\x00\xff\xfe{\"@message\":5}\n1|2\n\n||||\n")
			fmt.Fprint(os.Stderr, "{\"@message\":5}\n\xff\n")
		},
		"long line first": func(a *actor) {
			a.writeFlood(a.stdout, "x", a.flood)
			fmt.Fprintln(a.stdout)
		},
		"flood first": func(a *actor) {
			a.writeFlood(a.stdout, strings.Repeat("noise ", 10)+"\n", a.flood)
			fmt.Fprintln(a.stdout)
		},
	}
}

// calls are what the SDK's handler does on a bad record, before it
// acknowledges it.
func calls() map[string]func(a *actor, ctx context.Context) error {
	return map[string]func(a *actor, ctx context.Context) error{
		"floods stdout": func(a *actor, _ context.Context) error {
			return a.writeFlood(a.stdout, strings.Repeat("noise ", 10)+"\n", a.flood)
		},
		"floods stderr": func(a *actor, _ context.Context) error {
			return a.writeFlood(os.Stderr, strings.Repeat("noise ", 10)+"\n", a.flood)
		},
		"no line end": func(a *actor, _ context.Context) error {
			return errors.Join(a.writeFlood(a.stdout, "x", a.flood), a.writeFlood(os.Stderr, "x", a.flood))
		},
		"not a log line": func(*actor, context.Context) error {
			_, err := fmt.Fprint(os.Stderr, "{\"@message\":5}\n{\"@level\":{},\"@message\":[],\"@timestamp\":\xff}\n{\n\xff\xfe\u202e\x1b[2J\n")
			return err
		},
		"hangs":        func(*actor, context.Context) error { select {} },
		"killed":       func(*actor, context.Context) error { die(unix.SIGKILL); return nil },
		"faults":       func(*actor, context.Context) error { die(unix.SIGSEGV); return nil },
		"aborts":       func(*actor, context.Context) error { die(unix.SIGABRT); return nil },
		"freezes":      func(*actor, context.Context) error { die(unix.SIGSTOP); return nil },
		"exits with 0": func(*actor, context.Context) error { os.Exit(0); return nil },
		"panics elsewhere": func(*actor, context.Context) error {
			go panic("out of\u202e luck \x1b[31m")
			select {}
		},
		"out of memory": func(*actor, context.Context) error { exhaust(); return nil },
		"stack": func(*actor, context.Context) error {
			debug.SetMaxStack(1 << 20)
			return dig(0)
		},
		"grandchild": func(a *actor, _ context.Context) error {
			a.grandchild(false)
			os.Exit(3)
			return nil
		},
		"grandchild of its own": func(a *actor, _ context.Context) error {
			a.grandchild(true)
			os.Exit(3)
			return nil
		},
		"blocks in a call": func(*actor, context.Context) error {
			var ends [2]int
			if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
				return err
			}
			_, err := unix.Read(ends[0], make([]byte, 1))
			return err
		},
		"spins": func(*actor, context.Context) error {
			for n := 0; ; n++ {
				spun = n
			}
		},
		"hangs with a grandchild": func(a *actor, _ context.Context) error {
			a.grandchild(false)
			select {}
		},
		"shuts its pipes": func(a *actor, _ context.Context) error {
			return errors.Join(a.stdout.Close(), os.Stderr.Close())
		},
	}
}

// spun keeps a loop from being left out.
var spun int

// habits are what the SDK's handler does with every record.
func habits() map[string]func(a *actor, m *plugin.Message) {
	return map[string]func(a *actor, m *plugin.Message){
		"leaks":                   func(a *actor, _ *plugin.Message) { a.leak() },
		"kills":                   func(a *actor, m *plugin.Message) { a.exitIf(string(m.Value) == bad) },
		"kills under other names": func(a *actor, m *plugin.Message) { a.exitIf(string(m.Value) == bad) },
		"dies of everything":      func(a *actor, _ *plugin.Message) { a.exitIf(a.life <= 12) },
		"dies of every second":    func(a *actor, _ *plugin.Message) { a.exitIf(a.calls.Add(1) == 2) },
		"dies of every third":     func(a *actor, _ *plugin.Message) { a.exitIf(a.calls.Add(1) == 3) },
	}
}

func (a *actor) exitIf(so bool) {
	if so {
		a.first("did")
		os.Exit(3)
	}
}

// line is a handshake.
func (a *actor) line(version, path string) string { return "1|" + version + "|unix|" + path + "|grpc|" }

// tell prints a handshake that is a lie and waits to be killed for it.
func (a *actor) tell(line string) {
	fmt.Fprintln(a.stdout, line)
	select {}
}

// writeFlood writes text again and again, n bytes of it.
func (a *actor) writeFlood(to *os.File, text string, n int) error {
	block := []byte(strings.Repeat(text, 1+(64<<10)/len(text)))
	for n > 0 {
		m, err := to.Write(block[:min(n, len(block))])
		if err != nil {
			return err
		}
		n -= m
	}
	return nil
}

// leak keeps 1 MiB, ten goroutines and a descriptor for ever.
func (a *actor) leak() {
	kept := make([]byte, 1<<20)
	for i := range kept {
		kept[i] = byte(i)
	}
	never := make(chan []byte)
	for range 10 {
		go func() { never <- kept }()
	}
	unix.Dup(1)
}

// grandchild starts a process that holds our stdout and stderr for as long as
// it lives, and knows nothing of us.
func (a *actor) grandchild(group bool) {
	c := exec.Command("/bin/sleep", "1000")
	c.Stdout, c.Stderr = a.stdout, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: group}
	if err := c.Start(); err != nil {
		panic(err)
	}
	note := filepath.Join(a.dir, "grandchild")
	if err := os.WriteFile(note+".new", []byte(strconv.Itoa(c.Process.Pid)), 0o600); err != nil {
		panic(err)
	}
	if err := os.Rename(note+".new", note); err != nil {
		panic(err)
	}
}

// die sends us a signal that does what it does by default, and leaves no core.
func die(sig unix.Signal) {
	unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	var byDefault [4]uint64 // the kernel's struct sigaction
	unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&byDefault)), 0, 8, 0, 0)
	unix.Kill(os.Getpid(), sig)
	select {} // it takes hold a moment later
}

// exhaust takes memory until the system gives no more, which is soon.
func exhaust() {
	debug.SetMemoryLimit(math.MaxInt64)
	unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: 64 << 20, Max: 64 << 20})
	var all [][]byte
	for {
		all = append(all, make([]byte, 16<<20))
		io.Discard.Write(all[0])
	}
}

// dig calls itself without an end.
func dig(n int) error {
	if n == math.MaxInt {
		return nil
	}
	if err := dig(n + 1); err != nil {
		return err
	}
	return fmt.Errorf("%d", n)
}

// obeyNothing makes every signal that can be ignored one that is.
func obeyNothing() {
	signal.Ignore(unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGPIPE)
}
