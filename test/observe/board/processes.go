package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// processes are those that run for a picture. The kernel kills them when this
// program ends, however it ends; it ties that to the thread that started them,
// so main's goroutine keeps its thread, and start is for it alone.
type processes struct {
	logs string // folder of what they print
	all  []*exec.Cmd
}

// start runs a program until stop. Its output is in logs under name.
func (p *processes) start(name string, env []string, program string, args ...string) error {
	log, err := os.Create(filepath.Join(p.logs, name+".log"))
	if err != nil {
		return fmt.Errorf("open log of %s: %w", name, err)
	}
	defer log.Close() // the process has its own
	cmd := exec.Command(program, args...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = env, p.logs, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w; make need installs what is missing", name, err)
	}
	p.all = append(p.all, cmd)
	return nil
}

// stop ends them, the last started first.
func (p *processes) stop() {
	for i := len(p.all) - 1; i >= 0; i-- {
		_ = p.all[i].Process.Signal(syscall.SIGTERM) // one that has ended is waited for all the same
		_ = p.all[i].Wait()
	}
	p.all = nil
}

// loopback is an address of this host that nobody else uses.
func loopback(port int) string {
	return fmt.Sprintf("127.%d.%d.%d:%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254), port)
}
