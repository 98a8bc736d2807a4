package secure_test

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/kconsume/kconsume/test/kcat"
	kafkago "github.com/segmentio/kafka-go"
)

// grants are the kafka-acls commands at the ends of the lines that a command ends
// with, each as the arguments that a shell makes of it.
func grants(t *testing.T, text string) (out [][]string) {
	t.Helper()
	for line := range strings.Lines(text) {
		_, command, ok := strings.Cut(strings.TrimSpace(line), "kafka-acls ")
		if !ok || !strings.HasPrefix(line, "kconsume: ") {
			continue // a line of the log
		}
		words, err := exec.CommandContext(t.Context(), "sh", "-c", `printf '%s\000' `+command).Output()
		if err != nil {
			t.Fatalf("a shell cannot read %s: %v", command, err)
		}
		args := strings.Split(strings.TrimSuffix(string(words), "\x00"), "\x00")
		if !slices.ContainsFunc(out, func(o []string) bool { return slices.Equal(o, args) }) {
			out = append(out, args)
		}
	}
	return out
}

// obey runs a grant with Kafka's own tool, as it is printed.
func obey(t *testing.T, args []string) {
	t.Helper()
	c := cluster(t)
	if out, err := c.Tool("org.apache.kafka.tools.AclCommand", append([]string{"--bootstrap-server", c.Bootstrap()}, args...)...); err != nil {
		t.Fatalf("kafka-acls %q: %v\n%s", args, err, out)
	}
}

// permissionOf is the permission that a grant gives.
func permissionOf(t *testing.T, args []string) (p permission) {
	t.Helper()
	for i := 0; i+1 < len(args); i++ {
		switch args[i] {
		case "--allow-principal":
			p.who = args[i+1]
		case "--operation":
			p.operation = args[i+1]
		case "--topic", "--group":
			p.kind, p.name = strings.TrimPrefix(args[i], "--"), args[i+1]
		}
	}
	if p.who == "" || p.operation == "" || p.name == "" {
		t.Fatalf("the grant %q is not whole", args)
	}
	return p
}

// Who begins with no permission at all, and runs each command that is printed,
// ends with a daemon that works, and with no permission that it does not need.
// The first command for each operation goes through Kafka's own tool.
func TestPrintedGrantsAreEnough(t *testing.T) {
	c := cluster(t)
	const topic = "grants"
	group := "the group's name" // which a shell must not take apart
	createTopic(t, topic)
	flags := byTLS(t, by(t, "scram-sha-512", password)...)
	given := map[permission]bool{}
	tooled := map[string]bool{}
	for round := 1; ; round++ {
		if round > 5 {
			t.Fatal("more than five rounds of grants")
		}
		o := runToEnd(t, c.ListenerAddr(onTLS, 0), topic, group, flags)
		if o.code == -1 {
			t.Logf("it runs after %d rounds and %d grants", round-1, len(given))
			break
		}
		all := grants(t, o.text)
		t.Logf("round %d: exit %d after %.1f s, %d grants", round, o.code, o.seconds, len(all))
		if o.code != 77 || len(all) == 0 {
			t.Fatalf("exit %d, want 77 and grants\n%s", o.code, o.text)
		}
		for _, args := range all {
			p := permissionOf(t, args)
			if given[p] {
				t.Fatalf("%v is asked for again\n%s", p, o.text)
			}
			given[p] = true
			if tooled[p.operation+p.kind] {
				allow(t, p)
				continue
			}
			tooled[p.operation+p.kind] = true
			obey(t, args)
		}
	}
	for _, p := range everythingOf(principal, topic, group) {
		if !given[p] {
			t.Errorf("%v was never asked for", p)
		}
		delete(given, p)
	}
	for p := range given {
		t.Errorf("%v was asked for, and is not needed", p)
	}
}

// runToEnd runs a daemon until it ends (its code), or has joined its group (−1).
func runToEnd(t *testing.T, brokers, topic, group string, flags []string) outcome {
	t.Helper()
	d := start(t, brokers, topic, group, flags...)
	joined := false
	until(t, "the daemon ends, or joins", func() bool {
		joined = strings.Contains(d.said(), "joined the group")
		select {
		case <-d.done:
			return true
		default:
			return joined
		}
	})
	if joined {
		d.stop()
		return outcome{code: -1, text: d.said()}
	}
	<-d.done
	return outcome{code: d.cmd.ProcessState.ExitCode(), text: d.said(), seconds: d.seconds()}
}

// Each permission by itself: without it a start is refused with the one command
// that gives it.
func TestEachMissingGrantIsNamedAtStart(t *testing.T) {
	c := cluster(t)
	const topic, group = "single", "single"
	createTopic(t, topic)
	all := everythingOf(principal, topic, group)
	allow(t, all...)
	flags := byTLS(t, by(t, "scram-sha-512", password)...)
	if o := runToEnd(t, c.ListenerAddr(onTLS, 0), topic, group, flags); o.code != -1 { // makes the topics
		t.Fatalf("exit %d\n%s", o.code, o.text)
	}
	out := &told{}
	out.add("MISSING", "EXIT", "SECONDS", "GRANT")
	defer out.print(t)
	for _, p := range all {
		if p.operation == "Create" {
			continue // they are there
		}
		take(t, p)
		o := runToEnd(t, c.ListenerAddr(onTLS, 0), topic, group, flags)
		named := grants(t, o.text)
		var shown string
		if len(named) > 0 {
			shown = "kafka-acls " + strings.Join(named[0], " ")
		}
		out.add(p.operation+" "+p.kind+" "+p.name, fmt.Sprint(o.code), fmt.Sprintf("%.1f", o.seconds), shown)
		if o.code != 77 || len(named) != 1 || permissionOf(t, named[0]) != p || o.seconds > withinSeconds {
			t.Errorf("without %v: exit %d after %.1f s, grants %q\n%s", p, o.code, o.seconds, named, o.text)
		}
		allow(t, p)
	}
}

// A permission that is taken away while records flow stops them, with the command
// that gives it back, and nothing is lost or handled twice once it is back.
func TestGrantsTakenWhileRunning(t *testing.T) {
	c := cluster(t)
	const topic, group = "taken", "taken"
	createTopic(t, topic)
	allow(t, everythingOf(principal, topic, group)...)
	d := start(t, c.ListenerAddr(onTLS, 0), topic, group, byTLS(t, by(t, "scram-sha-512", password)...)...)
	send(t, topic, "ok", "fail 1", "perm")
	d.handled("main", 3)
	d.handled("retry.1s", 1)
	main, retried := 3, 1
	for _, p := range []permission{
		{principal, "topic", topic, "Read"},
		{principal, "topic", topic + ".retry.1s", "Write"},
		{principal, "topic", topic + ".retry.1s", "Read"},
		{principal, "topic", topic + ".dlq", "Write"},
		{principal, "group", group, "Read"},
	} {
		t.Run(p.operation+" "+p.kind+" "+p.name, func(t *testing.T) {
			d.t = t
			take(t, p)
			from := len(d.said())
			send(t, topic, "ok", "fail 1", "perm")
			main, retried = main+3, retried+1
			d.says(from, fmt.Sprintf("kafka-acls --add --allow-principal %s --operation %s --%s %s", p.who, p.operation, p.kind, p.name))
			allow(t, p)
			d.handled("main", main)
			d.handled("retry.1s", retried)
		})
	}
	d.t = t
	d.stop()
	begun := map[string]int{}
	for _, call := range d.calls() {
		if !call.end {
			begun[fmt.Sprint(call.id, call.attempt)]++
		}
	}
	for id, n := range begun {
		if n > 1 {
			t.Errorf("%s was delivered %d times", id, n)
		}
	}
	if dead := kcat.Consume(t, c.Bootstrap(), topic+".dlq"); len(dead) != main/3 {
		t.Errorf("the DLQ holds %d records, want %d", len(dead), main/3)
	}
}

// A one-shot command is refused in the same words.
func TestOneShotCommandsNameTheGrant(t *testing.T) {
	c := cluster(t)
	const topic = "oneshot"
	createTopic(t, topic)
	flags := append([]string{"--brokers", c.ListenerAddr(onMutual, 0), "--topic", topic, "--group", topic, "--retry", "1s"},
		byTLS(t, certificate(t, clients, billingLeaf)...)...)
	for _, command := range [][]string{{"topics", "plan"}, {"topics", "apply"}, {"retries", "list"}} {
		o := kconsume(t, append(slices.Clone(command), flags...)...)
		t.Logf("%v: exit %d: %s", command, o.code, lastLine(o.text))
		named := grants(t, o.text)
		if o.code != 77 || len(named) == 0 || permissionOf(t, named[0]).who != mutualPrincipal {
			t.Errorf("%v: exit %d, grants %q\n%s", command, o.code, named, o.text)
		}
	}
	for range 6 {
		o := kconsume(t, append([]string{"topics", "apply"}, flags...)...)
		if o.code == 0 {
			return
		}
		for _, args := range grants(t, o.text) {
			allow(t, permissionOf(t, args))
		}
	}
	t.Error("six rounds of grants are not enough for topics apply")
}

// Certificates and secrets that change under a running daemon are taken up, and
// a wrong one stops it until it is mended.
func TestSecretsChangeWhileRunning(t *testing.T) {
	c := cluster(t)
	const topic, group = "rotated", "rotated"
	createTopic(t, topic)
	allow(t, everythingOf(principal, topic, group)...)
	secret := file(t, "password", []byte(password))
	d := start(t, c.ListenerAddr(onShort, 0), topic, group,
		byTLS(t, "--sasl-mechanism", "scram-sha-512", "--sasl-username", user, "--sasl-password-file", secret)...)
	send(t, topic, "ok")
	d.handled("main", 1)

	t.Cleanup(func() { setPassword(t, password) })
	setPassword(t, wrongSecret)
	// Sessions end within ten seconds, and the old password renews none.
	d.says(0, "refuses user billing by SCRAM-SHA-512")
	send(t, topic, "ok")
	next := secret + ".next"
	if err := os.WriteFile(next, []byte(wrongSecret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, secret); err != nil {
		t.Fatal(err)
	}
	d.handled("main", 2)
	d.says(0, "read a changed file again")

	// And back, the brokers first and the file right after.
	from := len(d.said())
	if err := os.WriteFile(next, []byte(password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	setPassword(t, password)
	if err := os.Rename(next, secret); err != nil {
		t.Fatal(err)
	}
	d.says(from, "read a changed file again")
	send(t, topic, "ok")
	d.handled("main", 3)
	d.stop()
}

// Where the main topic grows and the ones beside it may not, the command for each
// is told, and they grow once it has been run. Topics are looked at every half
// minute.
func TestGrantToGrowIsNamed(t *testing.T) {
	if os.Getenv("KCONSUME_SECURE_FULL") == "" {
		t.Skip("it takes a minute: KCONSUME_SECURE_FULL=1")
	}
	c := cluster(t)
	const topic, group = "grown", "grown"
	createTopic(t, topic)
	allow(t, everythingOf(principal, topic, group)...)
	d := start(t, c.ListenerAddr(onTLS, 0), topic, group, byTLS(t, by(t, "scram-sha-512", password)...)...)
	send(t, topic, "ok")
	d.handled("main", 1)
	res, err := admin(t).CreatePartitions(t.Context(), &kafkago.CreatePartitionsRequest{Topics: []kafkago.TopicPartitionsConfig{{Name: topic, Count: 3}}})
	if err != nil || res.Errors[topic] != nil {
		t.Fatal(err, res)
	}
	var alter []permission
	for _, name := range besides(topic)[:3] { // the state has one partition for ever
		p := permission{principal, "topic", name, "Alter"}
		d.says(0, "kafka-acls --add --allow-principal "+p.who+" --operation Alter --topic "+name)
		alter = append(alter, p)
	}
	allow(t, alter...)
	d.says(0, "added partitions")
	d.stop()
}
