package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// launcher starts processes that the kernel kills when this program ends,
// however it ends. The kernel ties that to the thread that started them, so
// one goroutine keeps one thread for all of them.
type launcher struct {
	starts chan func()
	wait   sync.WaitGroup
}

func newLauncher() *launcher {
	l := &launcher{starts: make(chan func())}
	l.wait.Go(func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		for start := range l.starts {
			start()
		}
	})
	return l
}

func (l *launcher) start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	done := make(chan error)
	l.starts <- func() { done <- cmd.Start() }
	return <-done
}

func (l *launcher) close() {
	close(l.starts)
	l.wait.Wait()
}

// process is a started program that one goroutine waits for.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed at its end
	err  error         // what Wait said, once done
}

// launch starts a program whose output goes to a file.
func (l *launcher) launch(output string, env []string, path string, args ...string) (*process, error) {
	log, err := os.OpenFile(output, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open log of %s: %w", path, err)
	}
	defer log.Close() // the process has its own
	cmd := exec.Command(path, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = env, log, log
	if err := l.start(cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	go func() { // ends with the process, which whoever started it ends
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// kill ends the process at once, frozen or not, and returns when it is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended by itself
	<-p.done
}

// stop asks the process to end and waits for it. What does not end within
// patience is killed and is an error, as is any other end than with code 0.
func (p *process) stop(patience time.Duration) error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended by itself
	select {
	case <-p.done:
	case <-time.After(patience):
		p.kill()
		return fmt.Errorf("stop process %d: no end within %v of SIGTERM, so it was killed", p.pid(), patience)
	}
	if p.err != nil {
		return fmt.Errorf("stop process %d: it ended with: %w", p.pid(), p.err)
	}
	return nil
}
