package host_test

import "time"

// row is one hostile handler, and what is to become of it. Where it does not
// say otherwise, every record is acknowledged by the handler in the end.
type row struct {
	does string // for people
	mode string
	// refused are words of the error of a start. Then the handler also begins
	// well, exits, and is refused when it is started again, once.
	refused []string
	// ended are words of why the process ended; nil: it must not end.
	ended []string
	// logged is in a line of the log that tells what it does.
	logged string
	// stopped are words of the error of Stop.
	stopped []string
	// fate is the reason and the code of the bad record's verdict.
	fate string

	// slow is StartTimeout where a start that must fail takes all of it. Only a
	// whole one goes on after that, with more of it: good starts need it then.
	slow    time.Duration
	whole   bool
	timeout time.Duration // of each delivery
	grace   time.Duration
	bulk    int // bytes added to each record
	tls     bool
	heap    int64 // the most that the host's heap may grow; 0: not looked at
}

const (
	records = 20
	theBad  = 9 // the offset of the record that provokes it
)

func rows() []row {
	return []row{
		{does: "does everything right", mode: "well"},
		{does: "exits at once", mode: "exits at once", refused: []string{"it exited before its handshake", "is it a kconsume handler?", "exit status 7", "cannot read"}},
		{does: "is killed at once", mode: "killed at once", refused: []string{"it exited before its handshake", "killed by SIGKILL"}},
		{does: "prints garbage, then nothing", mode: "garbage", slow: time.Second, refused: []string{"wrote no handshake to stdout within", "is it a kconsume handler?"}},
		{does: "prints a handshake without a line end", mode: "no end of line", slow: time.Second, refused: []string{"within 1s"}},
		{does: "closes stdout without a handshake", mode: "closes stdout", slow: time.Second, refused: []string{"wrote no handshake to stdout within"}},
		{does: "handshakes after 30 s", mode: "late", slow: time.Second, whole: true, refused: []string{"wrote no handshake to stdout within"}},
		{does: "speaks another core protocol", mode: "core protocol", refused: []string{"version 2 of go-plugin's handshake, not 1", "build it with"}},
		{does: "speaks another contract", mode: "app protocol", refused: []string{"version 7 of the handler contract, this kconsume version 1", "build it with"}},
		{does: "listens on TCP", mode: "tcp", refused: []string{"listens on tcp", "use a kconsume SDK"}},
		{does: "speaks net/rpc", mode: "netrpc", refused: []string{`"netrpc", not grpc`, "use a kconsume SDK"}},
		{does: "cuts its handshake short", mode: "few fields", refused: []string{"has 4 fields, not 5 or more"}},
		{does: "listens outside its directory", mode: "elsewhere", refused: []string{"/run/another.sock", "PLUGIN_UNIX_SOCKET_DIR"}},
		{does: "listens outside by way of ..", mode: "climbs out", refused: []string{"another.sock", "PLUGIN_UNIX_SOCKET_DIR"}},
		{does: "names a socket that is none", mode: "no socket", refused: []string{"socket"}},
		{does: "listens and never accepts", mode: "never accepts", slow: 5 * time.Second, refused: []string{"within 5s"}},
		{does: "speaks HTTP/1.1", mode: "speaks HTTP", refused: []string{"use a kconsume SDK"}},
		{does: "serves something else", mode: "no such service", refused: []string{"does not serve kconsume.handler.v1.Handler", "use a kconsume SDK"}},
		{does: "begins with no Hello", mode: "no Hello", refused: []string{"first frame is not a Hello", "use a kconsume SDK"}},
		{does: "says no Hello", mode: "silent", slow: 5 * time.Second, whole: true, refused: []string{"within"}},
		{does: "ends its stream before a Hello", mode: "hangs up first", refused: []string{"ended its stream before its Hello", "use a kconsume SDK"}},
		{does: "prints garbage before a good handshake", mode: "garbage first"},
		{does: "hands over a certificate nobody asked for", mode: "certificate"},
		{does: "says a Hello of 64 MiB", mode: "enormous Hello"},
		{does: "takes one byte in flight", mode: "takes one byte"},
		{does: "boasts of limits", mode: "boasts"},
		{does: "prints {\"@message\":5} and the like", mode: "not a log line", logged: `@message`},
		{does: "closes its stdout and stderr", mode: "shuts its pipes"},
		{does: "answers handles that do not exist", mode: "unknown handles", logged: "answers what was not asked, or twice: ignored"},
		{does: "answers twice in a frame", mode: "answers twice", logged: "answers what was not asked, or twice: ignored"},
		{does: "answers twice in two frames", mode: "answers twice, later", logged: "answers what was not asked, or twice: ignored"},
		{does: "answers with an unknown class", mode: "unknown class", fate: "transient bad_answer"},
		{does: "answers without a class", mode: "no class", fate: "transient bad_answer"},
		{does: "gives a reason that is the host's", mode: "the host's reasons", fate: "permanent"},
		{does: "writes invalid UTF-8 everywhere", mode: "not UTF-8", fate: "transient \xff\xfe\x80\u202e\x1b]0;\x07\n"},
		{does: "sends what is no frame", mode: "no frame", ended: []string{"receive answers"}},
		{does: "sends 100,000 empty frames", mode: "empty frames"},
		{does: "says Hello again, as somebody else", mode: "another Hello"},
		{does: "never answers", mode: "never answers", timeout: 500 * time.Millisecond, grace: time.Second, ended: []string{"it hangs", "no answer for t", "past every deadline"}},
		{does: "hangs in a call", mode: "hangs", timeout: 5 * time.Second, grace: time.Second, fate: "timeout"},
		{does: "stops reading its stream", mode: "stops reading", timeout: 500 * time.Millisecond, grace: time.Second, bulk: 1 << 20, ended: []string{"it hangs", "past every deadline"}},
		{does: "ends its stream", mode: "ends the stream", ended: []string{"ended the stream without being asked"}},
		{does: "hangs up", mode: "hangs up", ended: []string{"receive"}},
		{does: "does not echo beats", mode: "mute", ended: []string{"it hangs", "heartbeats without an echo"}},
		{does: "echoes beats that were not sent", mode: "echoes of no beats", ended: []string{"it hangs: 3 heartbeats without an echo"}},
		{does: "ignores SIGTERM, lifeline and drain", mode: "ignores all", grace: 300 * time.Millisecond, stopped: []string{"stop handler hostile: it did not end by itself"}},
		{does: "starts a process that holds its pipes, and exits", mode: "grandchild", ended: []string{"exit status 3"}},
		{does: "the same in a session of its own", mode: "grandchild of its own", ended: []string{"exit status 3"}},
		{does: "dies by SIGKILL", mode: "killed", ended: []string{"killed by SIGKILL"}},
		{does: "dies by SIGSEGV", mode: "faults", ended: []string{"killed by SIGSEGV"}},
		{does: "dies by SIGABRT", mode: "aborts", ended: []string{"killed by SIGABRT"}},
		{does: "runs out of memory", mode: "out of memory", ended: []string{"exit status"}},
		{does: "overflows its stack", mode: "stack", ended: []string{"exit status 2", "stack overflow"}},
		{does: "panics in a goroutine of its own", mode: "panics elsewhere", ended: []string{"exit status 2", "panic: out of"}},
		{does: "calls os.Exit(0) in the middle of a batch", mode: "exits with 0", ended: []string{"exit status 0"}},
		{does: "freezes", mode: "freezes", ended: []string{"it hangs", "heartbeats without an echo"}},
		{does: "leaks with each record", mode: "leaks"},
		{does: "calls a record cancelled that nobody cancelled", mode: "calls it cancelled", fate: "transient bad_answer"},
		{does: "freezes where beats may wait", mode: "freezes, and may", timeout: 500 * time.Millisecond, grace: time.Second, ended: []string{"it hangs", "past every deadline"}},
		{does: "serves TLS, and dies by SIGKILL", mode: "killed", tls: true, ended: []string{"killed by SIGKILL"}},
		{does: "serves no TLS where it is to", mode: "no TLS", tls: true, refused: []string{"no TLS on the socket", "start without --handler-tls"}},
		{does: "serves TLS as somebody else", mode: "another's TLS", tls: true, refused: []string{"no TLS on the socket", "certificate"}},
		{does: "serves TLS where it is not to", mode: "another's TLS", refused: []string{"no gRPC on the socket", "use a kconsume SDK"}},
		{does: "dies of one record, always", mode: "kills", ended: []string{"exit status 3"}, fate: "handler_crash handler_crash"},
		{does: "the same, as another version each time", mode: "kills under other names", ended: []string{"exit status 3"}, fate: "handler_crash handler_crash"},
		{does: "dies of every record, 12 times", mode: "dies of everything", ended: []string{"exit status 3"}},
		{does: "dies of every second record it gets", mode: "dies of every second", ended: []string{"exit status 3"}},
		{does: "dies of every third record it gets", mode: "dies of every third", ended: []string{"exit status 3"}},
	}
}

// floods are looked at one by one, for what they do to the host's memory.
func floods() []row {
	const line = 96 << 20 // what pipes, one line and the log may take
	return []row{
		{does: "floods stdout", mode: "floods stdout", heap: line, logged: "handler writes more than is logged"},
		{does: "floods stderr", mode: "floods stderr", heap: line, logged: "handler writes more than is logged"},
		{does: "floods stdout before its handshake", mode: "flood first", heap: line, logged: "handler writes more than is logged"},
		{does: "prints a flood without a line end", mode: "no line end", heap: line, logged: `"cut":true`},
		{does: "prints it before its handshake", mode: "long line first", heap: line, logged: `"cut":true`},
		{does: "answers a verdict of 64 MiB", mode: "answers 64 MiB", heap: 512 << 20, fate: "permanent"},
		{does: "answers 8,388,608 handles at once", mode: "answers all at once", heap: 512 << 20, logged: "answers what was not asked, or twice: ignored"},
		{does: "answers a frame of more than 256 MiB", mode: "answers too much", heap: 128 << 20, ended: []string{"receive answers", "larger than max"}},
	}
}
