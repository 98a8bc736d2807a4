package option

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kconsume/kconsume/admin"
	"github.com/kconsume/kconsume/admin/dlq"
	"github.com/kconsume/kconsume/engine/secure"
	"github.com/kconsume/kconsume/engine/topology"
)

// Table is every setting, in the order of help.
func Table() []Option {
	return slices.Concat(general(), handler(), retries(), delivery(), cluster(), service(), plugins(), letters())
}

func general() []Option {
	return []Option{
		{Name: "config", Arg: "FILE", Use: Run | Topics | Status | Retries | Handlers, Global: true, NotInFile: true,
			Help: "YAML file with the same names as the flags"},
		{Name: "log-level", Kind: Choice, Arg: "LEVEL", Default: "info", Choices: []string{"debug", "info", "warn", "error"}, Use: Run | Topics | Retries | Launch, Global: true,
			Help: "least level that is logged"},
		{Name: "log-format", Kind: Choice, Arg: "FORMAT", Default: "text", Choices: []string{"text", "json"}, Use: Run | Topics | Retries | Launch, Global: true,
			Help: "form of the log on stderr"},
		{Name: "output", Alias: "o", Kind: Choice, Arg: "FORMAT", Default: "table", Choices: []string{"table", "json"}, Use: Topics | Status | Print | Retries | Letters, Global: true, NotInFile: true,
			Help: "form of what is printed"},
		{Name: "origin", Kind: Bool, Default: "false", Use: Show, NotInFile: true,
			Help: "show where each setting comes from"},
		{Name: "from", Arg: "GROUP", Use: Adopt, NotInFile: true,
			Help: "group whose waiting records are taken over"},
		{Name: "apply", Kind: Bool, Default: "false", Use: Adopt | Planning, NotInFile: true,
			Help: "do it; without it nothing is written: what would be done is shown"},
		{Name: "brokers", Kind: List, Arg: "HOST:PORT,...", Use: Run | Topics | Retries, Check: checkHostPort,
			Help: "brokers to ask first; commas separate, repeatable"},
		{Name: "group", Arg: "NAME", Use: Run | Topics | Status | Retries | Trial,
			Help: "consumer group"},
		{Name: "topic", Kind: List, Arg: "NAME,...", Use: Run | Topics | Retries | Trial,
			Help: "main topic; commas separate, repeatable"},
		{Name: "client-id", Arg: "ID", Use: Run | Topics | Retries, Computed: clientID,
			Help: "name of this client on every connection (default: kconsume-GROUP)"},
	}
}

func handler() []Option {
	return []Option{
		{Name: "handler", Arg: "NAME|PATH", Use: Run | Trial,
			Help: "handler: looked up as kconsume-handler-NAME, or a path with a slash in it"},
		{Name: "handler-dir", Kind: Lines, Arg: "DIR", Use: Run | Handlers,
			Default: "/usr/local/libexec/kconsume/handlers\n/usr/libexec/kconsume/handlers",
			Help:    "where handlers are looked up, in order; repeatable, in the environment one per line"},
		{Name: "handler-sha256", Arg: "HEX", Use: Run | Launch, Check: checkSHA256,
			Help: "digest that the handler's file must have"},
		{Name: "handler-arg", Kind: Lines, Arg: "ARG", Use: Run | Launch,
			Help: "argument of the handler, commas and all; repeatable, in the environment one per line"},
		{Name: "handler-env", Kind: Lines, Arg: "NAME[=VALUE]", Use: Run | Launch, Check: checkEnv, Redact: redactEnv,
			Help: "variable that the handler is given, commas and all; repeatable, in the environment one per line"},
		{Name: "handler-timeout", Kind: Duration, Arg: "DURATION", Default: "30s", Use: Run | Trial,
			Help: "deadline of one delivery"},
		{Name: "handler-tls", Kind: Bool, Default: "false", Use: Run,
			Help: "TLS on the handler's socket, with certificates made for each start; without it the socket's private directory guards it"},
		{Name: "handler-procs", Kind: Number, Arg: "N", Default: "1", Use: Run,
			Help: "processes of the handler, for a language with one thread; they share --concurrency"},
	}
}

func retries() []Option {
	return []Option{
		{Name: "retry", Kind: Durations, Arg: "DELAY,...", Default: "5s,30s", Use: Run | Topics | Retries | Trial,
			Help: "delays of the retry tiers: the failed delivery n goes to tier n; empty = no retries. A shorter tier may follow a longer one. A tier is named by its delay in the largest whole unit: 60s, 1m and 60000ms are all 1m"},
		{Name: "max-attempts", Kind: Number, Arg: "N", Use: Run | Trial, Computed: func(s *Set) any { return len(s.Durations("retry")) + 1 },
			Help: "deliveries of a record, the first one counted (default: tiers + 1); with more the last tier repeats"},
		{Name: "retry-topic", Arg: "TEMPLATE", Default: topology.DefaultRetryTopic, Use: Run | Topics | Retries | Trial,
			Help: "names of the retry topics, of {topic}, {delay} and {group}"},
		{Name: "dlq-topic", Arg: "TEMPLATE", Default: topology.DefaultDLQTopic, Use: Run | Topics | Retries | Trial,
			Help: "names of the dead letter topics, of {topic} and {group}"},
		{Name: "retry-after-max", Kind: Duration, Arg: "DURATION", Use: Run | Trial, Computed: longestTier,
			Help: "what a handler's retry-after is cut to (default: the longest tier)"},
		{Name: "unknown-errors", Kind: Choice, Arg: "CLASS", Default: "permanent", Choices: []string{"permanent", "transient"}, Use: Run | Trial,
			Help: "what an error is that no rule knows"},
		{Name: "create-topics", Kind: Bool, Default: "true", Use: Run,
			Help: "create retry, replay and dead letter topics that are missing; never the main topic"},
		{Name: "dlq-retention", Kind: Duration, Arg: "DURATION", Default: "unlimited", Zero: "unlimited", Use: Run | Topics,
			Help: "retention of a dead letter topic that is created"},
		{Name: "oversize", Kind: Choice, Arg: "POLICY", Default: "stop", Choices: []string{"stop", "pointer"}, Use: Run,
			Help: "a record too large for a retry or dead letter topic: stop = its partition waits until the topic takes it, pointer = a small record that names it is dead-lettered in its place"},
		{Name: "headers", Kind: List, Arg: "DIALECT,...", Default: "kconsume", Use: Run, Check: checkDialect,
			Help: "headers of dead letters: kconsume's own are always there; spring and kip1191 add those that other tools read"},
		{Name: "emit", Kind: Lines, Arg: "TOPIC=POLICY", Use: Run | Trial, Check: checkEmit, CheckAll: checkEmits,
			Help: "topic that the handler may emit to, and what becomes of a record that cannot be sent: outbox = its source record is not done before it is, buffer = it waits in memory (a quarter of max-buffer), drop = one try; losses are counted. Repeatable, in the environment one per line"},
	}
}

func delivery() []Option {
	return []Option{
		{Name: "order", Kind: Choice, Arg: "ORDER", Default: "key", Choices: []string{"key", "partition", "none"}, Use: Run,
			Help: "what is handled one at a time"},
		{Name: "concurrency", Kind: Number, Arg: "N", Default: "64", Use: Run | Trial,
			Help: "handler calls that run at once"},
		{Name: "max-buffer", Kind: Size, Arg: "SIZE", Default: "32MiB", Use: Run,
			Help: "bytes that are fetched and not settled"},
		{Name: "start", Kind: Start, Arg: "WHERE", Default: "earliest", Choices: []string{"earliest", "latest"}, Use: Run,
			Help: "where a main topic without a committed offset begins: earliest, latest or a time (RFC 3339)"},
		{Name: "offset-lost", Kind: Choice, Arg: "POLICY", Default: "earliest", Choices: []string{"earliest", "latest", "fail"}, Use: Run,
			Help: "where to go on when a main topic's committed offset is gone"},
		{Name: "isolation", Kind: Choice, Arg: "LEVEL", Default: "read_committed", Choices: []string{"read_committed", "read_uncommitted"}, Use: Run,
			Help: "whether records of open and aborted transactions are read"},
		{Name: "commit-interval", Kind: Duration, Arg: "DURATION", Default: "1s", Use: Run,
			Help: "time between commits"},
		{Name: "drain-timeout", Kind: Duration, Arg: "DURATION", Default: "35s", Use: Run,
			Help: "what deliveries get to end in at a stop; at least the handler timeout"},
	}
}

func cluster() []Option {
	return []Option{
		{Name: "exit-if-unreachable", Kind: Bool, Default: "false", Use: Run,
			Help: "exit with 69 rather than wait for brokers"},
		{Name: "session-timeout", Kind: Duration, Arg: "DURATION", Default: "45s", Use: Run,
			Help: "after which the group gives up a silent member"},
		{Name: "heartbeat-interval", Kind: Duration, Arg: "DURATION", Default: "1s", Use: Run,
			Help: "time between heartbeats; a rebalance is noticed at the next one"},
		{Name: "rebalance-timeout", Kind: Duration, Arg: "DURATION", Default: "60s", Use: Run,
			Help: "how long the group waits for members to join again"},
		{Name: "write-attempts", Kind: Number, Arg: "N", Default: "10", Use: Run,
			Help: "attempts of one write of a forwarded record, before it begins anew"},
		{Name: "write-backoff-min", Kind: Duration, Arg: "DURATION", Default: "100ms", Use: Run,
			Help: "least wait between them"},
		{Name: "write-backoff-max", Kind: Duration, Arg: "DURATION", Default: "1s", Use: Run,
			Help: "longest wait between them"},
		{Name: "write-timeout", Kind: Duration, Arg: "DURATION", Default: "10s", Use: Run,
			Help: "deadline of sending one write"},
		{Name: "read-timeout", Kind: Duration, Arg: "DURATION", Default: "10s", Use: Run,
			Help: "deadline of its answer"},
		{Name: "tls", Kind: Bool, Default: "false", Use: Run | Topics | Retries,
			Help: "connect to brokers by TLS; its files are read again when they change"},
		{Name: "tls-ca", Arg: "FILE", Use: Run | Topics | Retries,
			Help: "authorities of the brokers' certificates, PEM (default: the system's)"},
		{Name: "tls-cert", Arg: "FILE", Use: Run | Topics | Retries,
			Help: "certificate of this client, PEM"},
		{Name: "tls-key", Arg: "FILE", Use: Run | Topics | Retries,
			Help: "its key, mode 0640 or stricter"},
		{Name: "tls-server-name", Arg: "HOST", Use: Run | Topics | Retries,
			Help: "what the brokers' certificates must be for (default: the host of the address)"},
		{Name: "sasl-mechanism", Kind: Choice, Arg: "NAME", Choices: saslMechanisms(), Use: Run | Topics | Retries,
			Help: "how this client proves to brokers who it is"},
		{Name: "sasl-username", Arg: "NAME", Use: Run | Topics | Retries,
			Help: "user of plain and scram"},
		{Name: "sasl-password-file", Arg: "FILE", Use: Run | Topics | Retries,
			Help: "its password, mode 0640 or stricter; read again when it changes"},
		{Name: "sasl-oauth-token-url", Arg: "URL", Use: Run | Topics | Retries,
			Help: "endpoint that gives oauthbearer its tokens, by the client credentials grant"},
		{Name: "sasl-oauth-client-id", Arg: "ID", Use: Run | Topics | Retries,
			Help: "client that it gives them to"},
		{Name: "sasl-oauth-client-secret-file", Arg: "FILE", Use: Run | Topics | Retries,
			Help: "the client's secret, mode 0640 or stricter; read again when it changes"},
		{Name: "sasl-oauth-scope", Arg: "SCOPES", Use: Run | Topics | Retries,
			Help: "scopes that are asked for, with spaces between them"},
		{Name: "sasl-oauth-token-file", Arg: "FILE", Use: Run | Topics | Retries,
			Help: "token of oauthbearer that somebody else renews, mode 0640 or stricter; read again when it changes"},
	}
}

func saslMechanisms() (names []string) {
	for _, m := range secure.Mechanisms() {
		names = append(names, string(m))
	}
	return names
}

func service() []Option {
	return []Option{
		{Name: "metrics", Arg: "HOST:PORT", Default: "127.0.0.1:9464", Empty: true, Use: Run, Check: checkHostPort,
			Help: "address of /metrics, /livez and /readyz; empty = off"},
		{Name: "critical", Kind: List, Arg: "NAME,...", Use: Run,
			Help: "main topic of which one dead letter is an incident already: alerts fire for the first one; commas separate, repeatable"},
		{Name: "state-dir", Arg: "DIR", Use: Run,
			Help: "where it remembers what it had in hand when it died (default: $STATE_DIRECTORY, /var/lib/kconsume for root, else kconsume in $XDG_STATE_HOME or ~/.local/state)"},
		{Name: "admin", Arg: "unix:PATH|tcp:HOST:PORT", Use: Run | Status, Computed: adminSocket, Check: checkAdmin,
			Help: "address of the admin API and the console (default: a socket in the runtime directory, named after the group); a TCP address is served beside that socket. Commands that ask a daemon elsewhere take https://HOST:PORT"},
		{Name: "token-file", Arg: "FILE", Use: Status,
			Help: "token for a daemon that is asked over https; nobody but its owner and group may read the file"},
		{Name: "ca-file", Arg: "FILE", Use: Status,
			Help: "authority of that daemon's certificate (default: the system's)"},
		{Name: "client-cert", Arg: "FILE", Use: Status,
			Help: "client certificate for it"},
		{Name: "client-key", Arg: "FILE", Use: Status,
			Help: "its key"},
		{Name: "admin-tokens", Arg: "FILE", Use: Run,
			Help: "tokens that are let in over TCP: a line ROLE NAME TOKEN for each; roles are viewer, reader, operator and admin"},
		{Name: "admin-users", Arg: "FILE", Use: Run,
			Help: "roles of users of this host and of client certificates: a line ROLE user:NAME, ROLE uid:NUMBER or ROLE cert:COMMON-NAME for each"},
		{Name: "admin-tls-cert", Arg: "FILE", Use: Run,
			Help: "certificate of the admin API over TCP; read again for each connection"},
		{Name: "admin-tls-key", Arg: "FILE", Use: Run,
			Help: "its key"},
		{Name: "admin-client-ca", Arg: "FILE", Use: Run,
			Help: "CA of client certificates that are let in over TCP"},
	}
}

func plugins() []Option {
	return []Option{
		{Name: "inspect", Kind: Bool, Default: "false", Use: Listing, NotInFile: true,
			Help: "start each handler that may be run, to ask it for its version"},
		{Name: "input", Arg: "FILE", Use: Trial, NotInFile: true,
			Help: "records, one line of JSON each, as dlq export writes them"},
		{Name: "expect", Arg: "FILE", Use: Trial, NotInFile: true,
			Help: "what is to become of them, one line of JSON each, as -o jsonl prints it; only the fields that it names are compared"},
		{Name: "update", Kind: Bool, Default: "false", Use: Trial, NotInFile: true,
			Help: "write what became of them to the file of --expect"},
		{Name: "until-settled", Kind: Bool, Default: "false", Use: Trial, NotInFile: true,
			Help: "deliver what is to be retried again at once, with the next attempt's number, until it is done or a dead letter"},
		{Name: "lang", Kind: Choice, Arg: "LANGUAGE", Choices: []string{"go", "python", "node", "java"}, Use: New, NotInFile: true,
			Help: "language of the handler"},
		{Name: "dir", Arg: "DIR", Use: New, NotInFile: true,
			Help: "where the project is made (default: NAME, here)"},
		{Name: "sdk", Arg: "DIR", Use: New, NotInFile: true,
			Help: "take the SDK from this directory, a checkout or an installed one, not from the language's registry"},
	}
}

func letters() []Option {
	var statuses []string
	for _, s := range dlq.Statuses() {
		statuses = append(statuses, string(s))
	}
	return []Option{
		{Name: "status", Kind: List, Arg: "STATUS,...", Use: Selecting | Filtering, NotInFile: true, Check: oneOf(statuses),
			Help: "only those in this status: " + strings.Join(statuses, ", ")},
		{Name: "fingerprint", Arg: "HEX", Use: Selecting, NotInFile: true,
			Help: "only those that failed alike, as dlq groups shows it"},
		{Name: "class", Arg: "CLASS", Use: Selecting, NotInFile: true,
			Help: "only those of this class: transient, permanent, poison, timeout, panic, handler_crash, oversize"},
		{Name: "failed-by", Arg: "NAME[@VERSION]", Use: Selecting, NotInFile: true,
			Help: "only those that failed in this handler"},
		{Name: "key", Arg: "KEY", Empty: true, Use: Selecting, NotInFile: true,
			Help: "only those with this key"},
		{Name: "since", Arg: "TIME", Use: Selecting, NotInFile: true, Check: checkTime,
			Help: "only those that came at this time (RFC 3339) or after"},
		{Name: "until", Arg: "TIME", Use: Selecting, NotInFile: true, Check: checkTime,
			Help: "only those that came before this time (RFC 3339)"},
		{Name: "limit", Kind: Number, Arg: "N", Default: "50", Use: Paging, NotInFile: true,
			Help: "at most as many; of what is sent, closed or exported there is no limit unless it is given"},
		{Name: "all", Kind: Bool, Default: "false", Use: Earlier, NotInFile: true,
			Help: "also what is known of earlier topics of this name"},
		{Name: "reason", Arg: "TEXT", Use: Acting, NotInFile: true,
			Help: "why; it stands in the audit"},
		{Name: "detach", Kind: Bool, Default: "false", Use: Planning, NotInFile: true,
			Help: "print the job and do not wait for its end"},
		{Name: "idempotency-key", Arg: "KEY", Use: Planning, NotInFile: true,
			Help: "the same key again is the same job"},
		{Name: "target", Kind: Choice, Arg: "WHERE", Default: "replay", Choices: []string{"replay", "source"}, Use: Replaying, NotInFile: true,
			Help: "replay = the replay topic, which this group alone reads; source = the main topic, which every group reads"},
		{Name: "rate", Kind: Number, Arg: "N", Default: "100", Use: Replaying, NotInFile: true,
			Help: "records a second"},
		{Name: "canary", Kind: Bool, Default: "false", Use: Replaying, NotInFile: true,
			Help: "send one first, and the rest if that is handled"},
		{Name: "force", Kind: Bool, Default: "false", Use: Replaying, NotInFile: true,
			Help: "also what was sent again too often; needs the role admin and a reason"},
		{Name: "listen", Arg: "HOST:PORT", Default: "127.0.0.1:0", Use: Listening, NotInFile: true, Check: checkLoopback,
			Help: "address on this host; port 0 is any that is free"},
	}
}

// oneOf checks that a value is one of some.
func oneOf(all []string) func(string) string {
	return func(v string) string {
		if slices.Contains(all, v) {
			return ""
		}
		return "write one of " + strings.Join(all, ", ")
	}
}

func checkTime(v string) string {
	if _, err := time.Parse(time.RFC3339, v); err != nil {
		return "write a time such as 2006-01-02T15:04:05Z"
	}
	return ""
}

func checkLoopback(v string) string {
	host, _, err := net.SplitHostPort(v)
	if a, perr := netip.ParseAddr(host); err != nil || perr != nil || !a.IsLoopback() {
		return "write an address of this host alone, such as 127.0.0.1:8080"
	}
	return ""
}

func clientID(s *Set) any {
	if s.Text("group") == "" {
		return ""
	}
	return "kconsume-" + s.Text("group")
}

func longestTier(s *Set) any {
	var longest time.Duration
	for _, d := range s.Durations("retry") {
		longest = max(longest, d)
	}
	return longest
}

func adminSocket(s *Set) any {
	if s.Text("group") == "" {
		return ""
	}
	return "unix:" + DefaultSocket(s.Text("group"))
}

// DefaultSocket is the path of a group's admin socket where none is named.
func DefaultSocket(group string) string {
	return filepath.Join(admin.RuntimeDir(os.Getenv), admin.SocketName(group, admin.Instance(os.Getenv)))
}

func checkHostPort(v string) string {
	if _, port, err := net.SplitHostPort(v); err != nil || port == "" {
		return "write host:port"
	}
	return ""
}

func checkAdmin(v string) string {
	if path, ok := strings.CutPrefix(v, "unix:"); ok && path != "" {
		return ""
	}
	if address, ok := strings.CutPrefix(v, "tcp:"); ok && checkHostPort(address) == "" {
		return ""
	}
	if strings.HasPrefix(v, "http:") || strings.HasPrefix(v, "https:") {
		return admin.CheckRemote(v)
	}
	return "write unix:PATH or tcp:HOST:PORT; https://HOST:PORT to ask a daemon elsewhere"
}

func checkSHA256(v string) string {
	if len(v) != 64 || strings.Trim(strings.ToLower(v), "0123456789abcdef") != "" {
		return "write the 64 hex digits that sha256sum prints"
	}
	return ""
}

func checkDialect(v string) string {
	if v != "kconsume" && v != "spring" && v != "kip1191" {
		return "of kconsume, spring and kip1191"
	}
	return ""
}

func checkEmit(v string) string {
	topic, policy, _ := strings.Cut(v, "=")
	if topic == "" || policy != "outbox" && policy != "buffer" && policy != "drop" {
		return "write TOPIC=outbox, TOPIC=buffer or TOPIC=drop"
	}
	return ""
}

func checkEmits(vs []string) (wrong, todo string) {
	seen := map[string]bool{}
	for _, v := range vs {
		topic, _, _ := strings.Cut(v, "=")
		if seen[topic] {
			return fmt.Sprintf("topic %q is named twice", topic), "name it once, with one policy"
		}
		seen[topic] = true
	}
	return "", ""
}

// redactEnv leaves the name of a variable.
func redactEnv(v string) string {
	name, _, set := strings.Cut(v, "=")
	if set {
		name += "=***"
	}
	return name
}

func checkEnv(v string) string {
	switch name, _, _ := strings.Cut(v, "="); name {
	case "":
		return "write NAME or NAME=VALUE"
	case "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID":
		return "remove it: it is between kconsume and its service manager, and a handler that speaks there speaks for kconsume"
	}
	return ""
}
