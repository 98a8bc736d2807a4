package plugin

import (
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

// gcPercent lets the heap grow to five times what lives. The memory limit stops
// that where memory is short.
const (
	gcPercent   = 400
	memoryShare = 4 // the limit is a fourth of the memory there is
)

// tuneMemory sets what the environment does not.
func tuneMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	if n := memory(readFile); n > 0 {
		debug.SetMemoryLimit(n / memoryShare)
	}
}

func readFile(name string) string {
	b, _ := os.ReadFile(name) // absent on other systems: then nothing is known
	return string(b)
}

// memory is how many bytes there are for this process: the machine's, or the
// least that a control group (v2) above it allows. 0 = not known.
func memory(read func(name string) string) int64 {
	least := machineMemory(read("/proc/meminfo"))
	_, group, found := strings.Cut(read("/proc/self/cgroup"), "0::")
	if !found {
		return least
	}
	group, _, _ = strings.Cut(group, "\n")
	for at := path.Clean("/" + group); ; at = path.Dir(at) {
		limit := read(path.Join("/sys/fs/cgroup", at, "memory.max"))
		n, err := strconv.ParseInt(strings.TrimSpace(limit), 10, 64)
		if err == nil && n > 0 && (least == 0 || n < least) {
			least = n
		}
		if at == "/" {
			return least
		}
	}
}

// machineMemory is MemTotal of /proc/meminfo, which is in KiB.
func machineMemory(meminfo string) int64 {
	for line := range strings.Lines(meminfo) {
		fields := strings.Fields(line)
		if len(fields) >= 2 && fields[0] == "MemTotal:" {
			n, _ := strconv.ParseInt(fields[1], 10, 64)
			return n << 10
		}
	}
	return 0
}
