package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	systemd "github.com/coreos/go-systemd/v22/daemon"
	"github.com/kconsume/kconsume/engine"
	"github.com/kconsume/kconsume/plugin/host"
)

const (
	// tellEvery is the time between two looks at what is to be told.
	tellEvery = time.Second
	// extension is the time that the service manager is asked for, again and
	// again while the daemon drains.
	extension = 15 * time.Second
	// closeNotice bounds the wait for a service manager that does not read.
	closeNotice = time.Second
	// statusWidth bounds the line that a service manager shows, in characters.
	statusWidth = 400
)

// notifier tells the service manager how the daemon is (sd_notify): ready once,
// what it is doing when that changes, and that it lives, at half the watchdog's
// time, for as long as every owner of state answers. Waiting for brokers, a
// handler that is down and an open transaction are told, and are life.
type notifier struct {
	of       *daemon
	logger   *slog.Logger
	watchdog time.Duration // 0 = the service manager asks for no sign of life
	running  sync.WaitGroup
	stop     context.CancelFunc
	told     string // of the one goroutine alone
	stopping bool   // the same
	failed   bool   // the same; the last message did not arrive
}

// notify tells the service manager that the daemon is ready, and goes on telling
// until close. It is nil, which is good for all its methods, where there is no
// service manager that listens.
func notify(d *daemon, getenv func(string) string, logger *slog.Logger) *notifier {
	if getenv("NOTIFY_SOCKET") == "" {
		return nil
	}
	ctx, stop := context.WithCancel(context.Background())
	n := &notifier{of: d, logger: logger, stop: stop}
	var err error
	if n.watchdog, err = systemd.SdWatchdogEnabled(false); err != nil {
		logger.Warn("no sign of life is given to the service manager", "error", err)
	}
	n.running.Go(func() { n.run(ctx) })
	return n
}

// run owns what was told.
func (n *notifier) run(ctx context.Context) {
	n.send(systemd.SdNotifyReady)
	n.tell(ctx)
	tick := time.NewTicker(tellEvery)
	defer tick.Stop()
	var alive <-chan time.Time // nil: nobody asks
	if n.watchdog > 0 {
		n.live(ctx)
		beat := time.NewTicker(n.watchdog / 2)
		defer beat.Stop()
		alive = beat.C
	}
	for {
		select {
		case <-ctx.Done():
			n.leave()
			return
		case <-tick.C:
			n.tell(ctx)
		case <-alive:
			n.live(ctx)
		}
	}
}

// live gives a sign of life if there is one.
func (n *notifier) live(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, min(aliveTimeout, n.watchdog/2))
	defer cancel()
	if err := n.of.alive(ctx); err != nil {
		n.say("no sign of life: " + err.Error())
		return
	}
	n.send(systemd.SdNotifyWatchdog)
}

// tell says what the daemon is doing, if that is new. One that does not answer
// at once has nothing new to say.
func (n *notifier) tell(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, tellEvery)
	defer cancel()
	if n.of.host.Alive(ctx) != nil {
		return
	}
	s, err := n.of.engine.Status(ctx)
	if err != nil {
		return
	}
	if s.State == engine.StateDraining {
		n.leave()
		n.send(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", extension.Microseconds()))
	}
	h := n.of.host.Status()
	n.say(statusLine(&s, &h))
}

// leave says once that the daemon ends.
func (n *notifier) leave() {
	if !n.stopping {
		n.stopping = true
		n.send(systemd.SdNotifyStopping)
	}
}

func (n *notifier) say(line string) {
	line = clip(printable(line), statusWidth)
	if line != n.told {
		n.told = line
		n.send("STATUS=" + line)
	}
}

// send logs a failure when it is new: the daemon goes on without.
func (n *notifier) send(message string) {
	_, err := systemd.SdNotify(false, message)
	if err != nil && !n.failed {
		n.logger.Warn("the service manager cannot be told how this daemon is: it may end it as one that hangs", "error", err)
	}
	n.failed = err != nil
}

// reloading says that the settings are read again; the result says that this is
// done. It may be called from any goroutine.
func (n *notifier) reloading() (done func()) {
	if n == nil {
		return func() {}
	}
	// A failure is told by what is sent every second.
	_, _ = systemd.SdNotify(false, systemd.SdNotifyReloading+"\n"+systemd.SdNotifyMonotonicUsec())
	return func() { _, _ = systemd.SdNotify(false, systemd.SdNotifyReady) }
}

// close says that the daemon ends, and returns when nothing more is said. It
// does not wait for long: a service manager that does not read what it is sent
// must not hold up the end.
func (n *notifier) close() {
	if n == nil {
		return
	}
	n.stop()
	ended := make(chan struct{})
	go func() { n.running.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(closeNotice):
	}
}

// statusLine is what a daemon is doing, for a person: it changes only when
// something does that a person would act on.
func statusLine(s *engine.Status, h *host.Status) string {
	since := s.Since.Format(time.RFC3339)
	switch s.State {
	case engine.StateStarting:
		return "waiting for brokers since " + since + ": " + cmp.Or(s.Problem, "asking them")
	case engine.StateJoining:
		return "joining group " + s.Group + " since " + since + trailing(s.Problem)
	case engine.StateDraining:
		return fmt.Sprintf("draining %d in flight since %s", s.InFlight, since)
	case engine.StateStopped:
		return "stopped"
	}
	if h.State != host.StateRunning {
		return fmt.Sprintf("paused since %s: handler %s is %s%s", h.Since.Format(time.RFC3339), h.Name, h.State, trailing(h.LastExit))
	}
	line := fmt.Sprintf("running in group %s with %s, handler %s %s", s.Group, partitions(s), h.Name, h.Version)
	for _, w := range s.Writes {
		return line + fmt.Sprintf("; cannot write to %s/%d: %s", w.Topic, w.Partition, w.Reason)
	}
	if open := openTransactions(s); len(open) > 0 {
		return line + "; " + open[0]
	}
	if s.Problem != "" {
		line += "; " + s.Problem
	}
	return line
}

func trailing(text string) string {
	if text == "" {
		return ""
	}
	return ": " + text
}

// partitions are those of main topics.
func partitions(s *engine.Status) string {
	n := 0
	for _, st := range s.Stages {
		if st.Topic == st.Of {
			n += len(st.Partitions)
		}
	}
	if n == 1 {
		return "1 partition"
	}
	return fmt.Sprintf("%d partitions", n)
}

// openTransactions are those that hold partitions up, in words.
func openTransactions(s *engine.Status) (lines []string) {
	for _, st := range s.Stages {
		for _, p := range st.Partitions {
			if !p.OpenSince.IsZero() {
				lines = append(lines, fmt.Sprintf("an open transaction holds up %s/%d at offset %d since %s", st.Topic, p.Partition, p.Position, p.OpenSince.Format(time.RFC3339)))
			}
		}
	}
	return lines
}
