package kafka

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// node is one broker and controller, and its process while it runs.
type node struct {
	dir  string // its settings, data and log
	proc *process
}

func (n *node) settings() string { return filepath.Join(n.dir, "server.properties") }

func (n *node) running() bool { return n.proc != nil && !n.proc.ended() }

// process is a started command that one goroutine waits for.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed at its end
	err  error         // what Wait said, once done
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// launch starts a node's process; it appends to the node's log.
func (c *Cluster) launch(n *node) error {
	log, err := os.OpenFile(n.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open broker log: %w", err)
	}
	defer log.Close() // the process has its own
	args := append(c.options.jvm(), "kafka.Kafka", n.settings())
	cmd := c.java(args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := c.launcher.start(cmd); err != nil {
		return fmt.Errorf("start broker: %w; run make check, which installs Java", err)
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	c.wait.Go(func() {
		p.err = cmd.Wait()
		close(p.done)
	})
	n.proc = p
	return nil
}

// end signals a node's process and waits for its end.
func (n *node) end(sig syscall.Signal, patience time.Duration) error {
	if n.proc == nil {
		return nil
	}
	p := n.proc
	n.proc = nil
	// The process may have ended by itself.
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal broker: %w", err)
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
	}
	err := p.cmd.Process.Kill()
	<-p.done
	return errors.Join(fmt.Errorf("stop broker: no end within %v of %v, so it was killed", patience, sig), err)
}

func (n *node) log() string { return filepath.Join(n.dir, "server.log") }

// words returns the end of the node's log for an error or a failed test.
func (n *node) words() string {
	b, err := os.ReadFile(n.log())
	if err != nil {
		return err.Error()
	}
	return string(bytes.TrimSpace(tail(b)))
}
