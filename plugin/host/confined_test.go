package host

import (
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestConfinement(t *testing.T) {
	exited := func(code int) syscall.WaitStatus { return syscall.WaitStatus(code << 8) }
	killed := func(s syscall.Signal) syscall.WaitStatus { return syscall.WaitStatus(s) }
	for _, c := range []struct {
		what       string
		status     syscall.WaitStatus
		words      string
		executable bool
		want       string // what it names
	}{
		{"a filtered call", killed(unix.SIGSYS), "", true, moreDropIn},
		{"V8", killed(unix.SIGTRAP), "# Check failed: 12 == (*__errno_location ()).", false, jitDropIn},
		{"V8 where it may", killed(unix.SIGTRAP), "", true, ""},
		{"a JVM", exited(1), "", false, jitDropIn},
		{"a JVM where it may", exited(1), "", true, ""},
		{"a JVM that says it on stderr", exited(1), "Failed to mark memory page as executable - check if grsecurity/PaX is enabled", false, jitDropIn},
		{"an older JVM", exited(1), "os::commit_memory failed; error='Operation not permitted' (errno=1)", false, jitDropIn},
		{"a crash of another kind", exited(1), "no such table", false, ""},
		{"a clean end", exited(0), "executable", false, ""},
		{"out of memory", killed(unix.SIGKILL), "", false, ""},
	} {
		got := confinement(c.status, c.words, func() bool { return c.executable })
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q; want %q", c.what, got, c.want)
		}
	}
	if !canExecute() {
		t.Error("these tests run where memory can be made executable")
	}
}
