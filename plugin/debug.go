package plugin

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

const (
	debugArg = "--debug"
	debugEnv = "KCONSUME_HANDLER_DEBUG"
	// debugLook is how often is looked for a debugger. The system tells nobody
	// when one comes.
	debugLook = 100 * time.Millisecond
)

// debugWanted: the handler was started with --handler-arg --debug, or with
// --handler-env KCONSUME_HANDLER_DEBUG=1.
func debugWanted() bool {
	return slices.Contains(os.Args[1:], debugArg) || os.Getenv(debugEnv) == "1"
}

// awaitDebugger holds the first records back until a debugger is attached, or
// ctx ends. The host has the handler's Hello by then, and knows from it that
// neither beats nor deadlines count. [WARN] is the level that its log has for a
// line.
func awaitDebugger(ctx context.Context, name string) {
	pid := os.Getpid()
	if _, known := tracer(readFile(statusFile)); !known {
		fmt.Fprintf(os.Stderr, "[WARN] handler %s does not wait for a debugger, there is no %s here to see it by: dlv attach %d\n", name, statusFile, pid)
		return
	}
	if err := allowTracers(); err != nil {
		fmt.Fprintf(os.Stderr, "[WARN] let others of this user attach: %v; where they cannot, attach as root\n", err)
	}
	fmt.Fprintf(os.Stderr, "[WARN] handler %s waits for a debugger: dlv attach %d\n", name, pid)
	look := time.NewTicker(debugLook)
	defer look.Stop()
	for {
		if by, _ := tracer(readFile(statusFile)); by != "0" {
			fmt.Fprintf(os.Stderr, "[WARN] handler %s is debugged by process %s: no deadlines from here on\n", name, by)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
	}
}

const statusFile = "/proc/self/status"

// tracer is the number of the process that debugs the one of this status, "0"
// for none; it is not known on other systems.
func tracer(status string) (pid string, known bool) {
	for line := range strings.Lines(status) {
		if value, ok := strings.CutPrefix(line, "TracerPid:"); ok {
			return strings.TrimSpace(value), true
		}
	}
	return "", false
}
