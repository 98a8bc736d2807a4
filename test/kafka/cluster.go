// Package kafka runs real Apache Kafka for tests and benchmarks: KRaft, one
// node or three, on a loopback address of its own, with data in a temporary
// folder. It needs Linux, Java 17 and, the first time, Maven.
//
// Nothing survives the process that started it: the kernel kills the brokers
// with it.
package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	kafkago "github.com/segmentio/kafka-go"
)

const (
	startTimeout = 2 * time.Minute // far above the two seconds it takes, for a machine under load
	stopTimeout  = 30 * time.Second
	toolTimeout  = 2 * time.Minute
)

// Options of a cluster; the zero value is one node with the settings below.
type Options struct {
	// Nodes are brokers and controllers at once; 0 means 1.
	Nodes int
	// Properties override the brokers' settings. For TLS or SASL map the
	// listener's name to another protocol:
	// listener.security.protocol.map=PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT
	Properties map[string]string
	// Listeners are further listeners of every broker.
	Listeners []Listener
	// Dialer is how the rig itself connects, where plain connections are
	// refused; nil means plainly.
	Dialer *kafkago.Dialer
	// Benchmark runs the brokers as in production. Without it the JVM is
	// tuned to start fast, and slower at everything after.
	Benchmark bool
}

func (o Options) replication() int { return min(o.Nodes, 3) }

func (o Options) jvm() []string {
	if o.Benchmark {
		return []string{"-Xms1g", "-Xmx1g", "-XX:+UseG1GC"}
	}
	return append([]string{"-Xmx512m"}, quick...)
}

// quick are JVM options for short-lived processes.
var quick = []string{"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"}

// Cluster is a running Kafka. Nodes are counted from 0; node i has id i+1.
// Start, Stop and Kill are for one goroutine at a time.
type Cluster struct {
	options  Options
	dir      string
	libs     string
	site     *site
	nodes    []*node
	launcher *launcher
	wait     sync.WaitGroup // for the goroutines that wait for processes
}

// Open starts a cluster and returns when it answers. The caller closes it.
func Open(ctx context.Context, o Options) (_ *Cluster, err error) {
	o.Nodes = max(o.Nodes, 1)
	libs, err := jars(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "kconsume-kafka-")
	if err != nil {
		return nil, fmt.Errorf("make data folder: %w", err)
	}
	site, err := claim(o.Nodes)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	c := &Cluster{options: o, dir: dir, libs: libs, site: site, launcher: newLauncher()}
	for i := range o.Nodes {
		c.nodes = append(c.nodes, &node{dir: filepath.Join(dir, fmt.Sprintf("node%d", i))})
	}
	if err := c.format(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	if err := c.Start(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Bootstrap returns the brokers' addresses, comma-separated.
func (c *Cluster) Bootstrap() string {
	addrs := make([]string, len(c.nodes))
	for i := range c.nodes {
		addrs[i] = c.Addr(i)
	}
	return strings.Join(addrs, ",")
}

// Addr returns host:port of broker i.
func (c *Cluster) Addr(i int) string { return c.site.broker(i) }

// PID returns the process id of node i, 0 where it does not run.
func (c *Cluster) PID(i int) int {
	if !c.nodes[i].running() {
		return 0
	}
	return c.nodes[i].proc.cmd.Process.Pid
}

// Start starts the nodes that do not run, all if none is named, and waits
// until they answer. After an outage of the majority start the majority in one
// call: a single node has nobody to agree with.
func (c *Cluster) Start(nodes ...int) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	nodes = c.named(nodes)
	for _, i := range nodes {
		if n := c.nodes[i]; !n.running() {
			if err := c.launch(n); err != nil {
				return err
			}
		}
	}
	return c.ready(ctx, nodes)
}

// Stop shuts the nodes down in an orderly way, all if none is named: leaders
// move away first. Their data stays.
func (c *Cluster) Stop(nodes ...int) error { return c.end(syscall.SIGTERM, nodes) }

// Kill ends the nodes at once, all if none is named. Their data stays. The
// controllers take a killed node for alive, and do not let it back, for
// broker.session.timeout.ms (9 s): a shorter one, with a
// broker.heartbeat.interval.ms of less than half, makes such tests quicker.
func (c *Cluster) Kill(nodes ...int) error { return c.end(syscall.SIGKILL, nodes) }

func (c *Cluster) end(sig syscall.Signal, nodes []int) error {
	nodes = c.named(nodes)
	errs := make([]error, len(nodes))
	var wait sync.WaitGroup
	for at, i := range nodes {
		wait.Go(func() { errs[at] = c.nodes[i].end(sig, stopTimeout) })
	}
	wait.Wait()
	return errors.Join(errs...)
}

func (c *Cluster) named(nodes []int) []int {
	if len(nodes) > 0 {
		return nodes
	}
	all := make([]int, len(c.nodes))
	for i := range all {
		all[i] = i
	}
	return all
}

// Tool runs one of Kafka's command-line tools by its Java class and returns
// what it printed to stdout. It is slow to start: about a second.
func (c *Cluster) Tool(class string, args ...string) ([]byte, error) {
	cmd := c.java(append(append(slices.Clone(quick), class), args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := c.launcher.start(cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w; run make check, which installs Java", class, err)
	}
	timer := time.AfterFunc(toolTimeout, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	if err := cmd.Wait(); err != nil {
		return stdout.Bytes(), fmt.Errorf("run %s: %w\n%s%s", class, err, tail(stdout.Bytes()), tail(stderr.Bytes()))
	}
	return stdout.Bytes(), nil
}

// Log returns the end of every node's log.
func (c *Cluster) Log() string {
	var b strings.Builder
	for i, n := range c.nodes {
		fmt.Fprintf(&b, "broker %d:\n%s\n", i, n.words())
	}
	return b.String()
}

// Close kills the nodes and deletes their data.
func (c *Cluster) Close() error {
	err := c.Kill()
	c.wait.Wait()
	c.launcher.close()
	return errors.Join(err, c.site.guard.Close(), os.RemoveAll(c.dir))
}

func (c *Cluster) java(args ...string) *exec.Cmd {
	java := "java"
	if home := os.Getenv("JAVA_HOME"); home != "" {
		java = filepath.Join(home, "bin", "java")
	}
	fixed := []string{
		"-cp", filepath.Join(c.libs, "*"),
		"-Dlog4j2.configurationFile=" + filepath.Join(c.dir, "log4j2.properties"),
	}
	return exec.Command(java, append(fixed, args...)...)
}

// format writes the nodes' settings and empty storage.
func (c *Cluster) format() error {
	if err := os.CopyFS(c.dir, files); err != nil {
		return fmt.Errorf("write log settings: %w", err)
	}
	errs := make([]error, len(c.nodes))
	var wait sync.WaitGroup
	for i, n := range c.nodes {
		wait.Go(func() { errs[i] = c.formatNode(i, n) })
	}
	wait.Wait()
	return errors.Join(errs...)
}

func (c *Cluster) formatNode(i int, n *node) error {
	if err := os.Mkdir(n.dir, 0o755); err != nil {
		return fmt.Errorf("make node folder: %w", err)
	}
	properties, err := c.properties(i)
	if err != nil {
		return err
	}
	if err := os.WriteFile(n.settings(), properties, 0o644); err != nil {
		return fmt.Errorf("write broker settings: %w", err)
	}
	// A cluster id is 16 bytes in base64.
	_, err = c.Tool("kafka.tools.StorageTool", "format", "-t", "kconsumeTestCluster000", "-c", n.settings())
	return err
}

// properties are node i's settings as a file.
func (c *Cluster) properties(i int) ([]byte, error) {
	voters := make([]string, len(c.nodes))
	for v := range voters {
		voters[v] = fmt.Sprintf("%d@%s", v+1, c.site.controller(v))
	}
	replication := fmt.Sprint(c.options.replication())
	p := map[string]string{
		"process.roles":                                    "broker,controller",
		"node.id":                                          fmt.Sprint(i + 1),
		"controller.quorum.voters":                         strings.Join(voters, ","),
		"controller.listener.names":                        "CONTROLLER",
		"listeners":                                        fmt.Sprintf("PLAINTEXT://%s,CONTROLLER://%s", c.site.broker(i), c.site.controller(i)),
		"advertised.listeners":                             "PLAINTEXT://" + c.site.broker(i),
		"log.dirs":                                         filepath.Join(c.nodes[i].dir, "data"),
		"auto.create.topics.enable":                        "false",
		"default.replication.factor":                       replication,
		"offsets.topic.replication.factor":                 replication,
		"offsets.topic.num.partitions":                     "5",
		"transaction.state.log.replication.factor":         replication,
		"transaction.state.log.num.partitions":             "5",
		"transaction.state.log.min.isr":                    "1",
		"share.coordinator.state.topic.replication.factor": replication,
		"share.coordinator.state.topic.min.isr":            "1",
		"group.initial.rebalance.delay.ms":                 "0",
		"log.retention.check.interval.ms":                  "1000",
	}
	if err := c.listeners(i, p); err != nil {
		return nil, err
	}
	maps.Copy(p, c.options.Properties)
	var b bytes.Buffer
	for _, key := range slices.Sorted(maps.Keys(p)) {
		fmt.Fprintf(&b, "%s=%s\n", key, p[key])
	}
	return b.Bytes(), nil
}
