// Command dlq measures what it costs to list the groups of a large DLQ while the
// main topic goes on: how long the first and the next list take, how much memory
// the daemon has, and how long records of the main topic take to their handler
// before and meanwhile.
//
// Two daemons share the main topic. The one that owns partition 0 reads the DLQ
// for its metrics from the beginning on; the other one does so when it is asked,
// and is the one that is measured.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/kconsume/kconsume/admin"
	"github.com/kconsume/kconsume/admin/dlq"
	"github.com/kconsume/kconsume/engine"
	"github.com/kconsume/kconsume/test/kafka"
	"github.com/kconsume/kconsume/test/operate/lab"
	kafkago "github.com/segmentio/kafka-go"
)

type settings struct {
	kconsume, handler       string
	records, kinds, rate    int
	partitions, size, lists int
	quiet                   time.Duration
}

const (
	topic = "orders"
	group = "bench"
)

func main() {
	var s settings
	flag.StringVar(&s.kconsume, "kconsume", "build/kconsume", "kconsume's binary")
	flag.StringVar(&s.handler, "handler", "build/bench/latency", "the binary of the handler latency")
	flag.IntVar(&s.records, "records", 1_000_000, "records in the DLQ")
	flag.IntVar(&s.kinds, "kinds", 1500, "kinds of errors among them")
	flag.IntVar(&s.rate, "rate", 5000, "records a second on the main topic")
	flag.IntVar(&s.partitions, "partitions", 12, "partitions")
	flag.IntVar(&s.size, "size", 300, "bytes of a value")
	flag.IntVar(&s.lists, "lists", 20, "lists that follow the first")
	flag.DurationVar(&s.quiet, "quiet", 20*time.Second, "how long the main topic is measured before")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := s.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "dlq:", err)
		os.Exit(1)
	}
}

func (s settings) run(ctx context.Context) (err error) {
	c, err := kafka.Open(ctx, kafka.Options{Benchmark: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	for _, t := range []kafkago.TopicConfig{{Topic: topic, NumPartitions: s.partitions}, lab.DLQ(topic, s.partitions)} {
		if err := c.CreateTopic(ctx, t); err != nil {
			return err
		}
	}
	began := time.Now()
	letters := lab.Letters{Topic: topic, Group: group, Partitions: int32(s.partitions), N: s.records, Failures: kinds(s.kinds), Size: s.size}
	if err := letters.Write(ctx, c.Bootstrap()); err != nil {
		return err
	}
	fmt.Printf("%d dead letters of %d kinds in %d partitions, written in %.1f s; load %s\n", s.records, s.kinds, s.partitions, time.Since(began).Seconds(), load())
	dir, err := os.MkdirTemp("", "kc-dlq-")
	if err != nil {
		return fmt.Errorf("make scratch folder: %w", err)
	}
	defer os.RemoveAll(dir)
	var both []*daemon
	for i := range 2 {
		d, err := s.start(c.Bootstrap(), filepath.Join(dir, strconv.Itoa(i)))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, d.stop()) }()
		both = append(both, d)
	}
	feeder := feed(ctx, c.Bootstrap(), s.rate)
	defer func() { err = errors.Join(err, feeder.stop()) }()
	d, err := second(ctx, both, s.partitions)
	if err != nil {
		return err
	}
	return s.measure(ctx, d)
}

// second is the daemon that does not own partition 0, once all are owned.
func second(ctx context.Context, both []*daemon, partitions int) (*daemon, error) {
	for {
		var other *daemon
		owned := 0
		for _, d := range both {
			mine, first, err := d.owns(ctx)
			if err != nil && ctx.Err() != nil {
				return nil, err
			}
			if owned += mine; mine > 0 && !first {
				other = d
			}
		}
		if owned == partitions && other != nil {
			return other, nil
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// owns counts a daemon's partitions of the main topic, and says whether the
// first is one of them.
func (d *daemon) owns(ctx context.Context) (n int, first bool, err error) {
	var s engine.Status
	if err := d.client.Status(ctx, &s); err != nil {
		return 0, false, err
	}
	for _, st := range s.Stages {
		if st.Topic != topic {
			continue
		}
		n = len(st.Partitions)
		first = slices.ContainsFunc(st.Partitions, func(p engine.PartitionStatus) bool { return p.Partition == 0 })
	}
	return n, first, nil
}

// kinds are as many failures that are told apart: words differ, as numbers do not.
func kinds(n int) []lab.Failure {
	out := make([]lab.Failure, n)
	for i := range out {
		word := ""
		for k := i + 26*26*26; k > 0; k /= 26 {
			word = string(rune('a'+k%26)) + word
		}
		out[i] = lab.Failure{Class: "permanent", Code: "500", Message: "table " + word + " refuses order %d", Handler: "orders@1.4.2", Value: "ok", Hours: float64(1 + i%23)}
	}
	return out
}

// daemon is the process that is measured.
type daemon struct {
	cmd    *exec.Cmd
	client *admin.Client
	log    string
}

func (s settings) start(brokers, dir string) (*daemon, error) {
	handler, err := filepath.Abs(s.handler) // a name would be looked up
	if err != nil {
		return nil, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make scratch folder: %w", err)
	}
	socket := filepath.Join(dir, "d.sock")
	d := &daemon{client: admin.NewClient(socket), log: filepath.Join(dir, "latency.log")}
	d.cmd = exec.Command(s.kconsume, "run", "--brokers", brokers, "--group", group, "--topic", topic, "--handler", handler, "--handler-env", "LATENCY_LOG="+d.log,
		"--log-level", "warn", "--metrics", "", "--admin", "unix:"+socket, "--start", "latest")
	d.cmd.Env = append(os.Environ(), "STATE_DIRECTORY="+dir)
	d.cmd.Stderr = os.Stderr
	if err := d.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", s.kconsume, err)
	}
	return d, nil
}

func (d *daemon) stop() error {
	_ = d.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	if err := d.cmd.Wait(); err != nil {
		return fmt.Errorf("stop the daemon: %w", err)
	}
	return nil
}

// groups asks for the list until it is whole, and returns how long that took and
// how many groups there are.
func (d *daemon) groups(ctx context.Context) (time.Duration, dlq.GroupPage, error) {
	began := time.Now()
	for {
		var page dlq.GroupPage
		err := d.client.Do(ctx, admin.Call{Path: "/v1/dlq/" + topic + ".dlq/groups", Query: map[string][]string{"limit": {"500"}}}, &page)
		if err == nil && page.Scan.Complete {
			return time.Since(began), page, nil
		}
		if _, refused := errors.AsType[*admin.CallError](err); err != nil && !refused || ctx.Err() != nil {
			return 0, page, errors.Join(err, ctx.Err())
		}
	}
}

// phase is a piece of time with what was measured in it.
type phase struct {
	name     string
	from, to time.Time
	peak     int64 // bytes
	note     string
}

func (s settings) measure(ctx context.Context, d *daemon) error {
	if err := d.warm(ctx); err != nil {
		return err
	}
	memory := watch(d.cmd.Process.Pid)
	defer memory.stop()
	var phases []phase
	during := func(name string, do func() (string, error)) error {
		memory.reset()
		p := phase{name: name, from: time.Now()}
		note, err := do()
		p.to, p.peak, p.note = time.Now(), memory.peak(), note
		phases = append(phases, p)
		return err
	}
	pause := func() (string, error) { return "", sleep(ctx, s.quiet) }
	list := func() (string, error) {
		took, page, err := d.groups(ctx)
		return fmt.Sprintf("%.2f s, %d records, page of %d groups", took.Seconds(), page.Scan.Records, len(page.Groups)), err
	}
	again := func() (string, error) {
		var sum time.Duration
		for range s.lists {
			took, _, err := d.groups(ctx)
			if err != nil {
				return "", err
			}
			sum += took
		}
		return fmt.Sprintf("%.0f ms each of %d", float64(sum.Milliseconds())/float64(s.lists), s.lists), nil
	}
	if err := errors.Join(during("before", pause), during("first list", list), during("next lists", again), during("after", pause)); err != nil {
		return err
	}
	if err := sleep(ctx, 3*time.Second); err != nil { // the handler's log is written once a second
		return err
	}
	return d.print(phases)
}

// warm waits until records are handled, and ten seconds more.
func (d *daemon) warm(ctx context.Context) error {
	for {
		if i, err := os.Stat(d.log); err == nil && i.Size() > 0 {
			return sleep(ctx, 10*time.Second)
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

func (d *daemon) print(phases []phase) error {
	all, err := readLatencies(d.log)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "phase\tseconds\trecords/s\tp50 ms\tp99 ms\tmax ms\tpeak RSS MiB\tlist\t")
	for _, p := range phases {
		of := all.between(p.from, p.to)
		ms := func(q float64) float64 { return float64(of.quantile(q)) / float64(time.Millisecond) }
		seconds := p.to.Sub(p.from).Seconds()
		fmt.Fprintf(w, "%s\t%.1f\t%.0f\t%.1f\t%.1f\t%.1f\t%.0f\t%s\t\n", p.name, seconds, float64(len(of))/seconds, ms(0.5), ms(0.99), ms(1), float64(p.peak)/(1<<20), p.note)
	}
	return w.Flush()
}

func load() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(b), " ")
	return first
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
