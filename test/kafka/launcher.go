package kafka

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// launcher starts processes that the kernel kills when this process ends,
// however it ends. The kernel ties that to the thread that started them, so
// one goroutine keeps one thread for all of them.
type launcher struct {
	starts chan start
	wait   sync.WaitGroup
}

type start struct {
	cmd  *exec.Cmd
	done chan error
}

func newLauncher() *launcher {
	l := &launcher{starts: make(chan start)}
	l.wait.Go(func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine, and what still runs with it
		for s := range l.starts {
			s.cmd.SysProcAttr = &syscall.SysProcAttr{
				Pdeathsig: syscall.SIGKILL,
				Setpgid:   true, // Ctrl-C is for the tests, which then stop it
			}
			s.done <- s.cmd.Start()
		}
	})
	return l
}

func (l *launcher) start(cmd *exec.Cmd) error {
	s := start{cmd, make(chan error)}
	l.starts <- s
	return <-s.done
}

func (l *launcher) close() {
	close(l.starts)
	l.wait.Wait()
}
