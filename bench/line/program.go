package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	kafkago "github.com/segmentio/kafka-go"
)

const (
	pollEvery = 20 * time.Millisecond
	patience  = 5 * time.Minute // for one run
	drain     = time.Minute     // for its end
)

// program is a consumer to be measured.
type program struct {
	name, group, path string
	args, env         []string
	metrics           string // URL, "" = off
}

// sample is where a program stands at one moment.
type sample struct {
	at        time.Time
	committed int64
	cpu       time.Duration // of it and its children
}

// result is one run.
type result struct {
	name    string
	rate    float64       // records a second, first seen commit to the last
	cpu     time.Duration // per record, over the same time
	peakRSS int64         // bytes, of the program without its children
	first   time.Duration // from its start to the first commit
	total   time.Duration // from its start to the last
	spans   spans
}

// measure runs the program until its group has committed the whole topic.
func (p program) measure(ctx context.Context, brokers, topic string, s settings) (_ result, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.path, p.args...)
	cmd.Env = append(os.Environ(), p.env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = drain
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if s.verbose {
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return result{}, fmt.Errorf("start: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()

	watch := watcher{pid: cmd.Process.Pid, brokers: brokers, group: p.group, topic: topic, settings: s}
	reading := scrape(ctx, p.metrics)
	first, last, err := watch.line(ctx, ended)
	var peak int64
	if err == nil {
		peak, err = peakRSS(cmd.Process.Pid)
	}
	told, metricsErr := reading.end(ctx)
	if err == nil {
		err = metricsErr
	}
	cancel()
	if errors.Is(err, errEnded) {
		return result{}, fmt.Errorf("%w: %s", err, output.Bytes())
	}
	<-ended // however it ends: it was told to
	if err != nil {
		return result{}, fmt.Errorf("%w: %s", err, output.Bytes())
	}
	records := last.committed - first.committed
	if records <= 0 {
		return result{}, fmt.Errorf("all %d records were committed at once: use more -records", last.committed)
	}
	return result{
		name:    p.name,
		rate:    float64(records) / last.at.Sub(first.at).Seconds(),
		cpu:     (last.cpu - first.cpu) / time.Duration(records),
		peakRSS: peak,
		first:   first.at.Sub(began),
		total:   last.at.Sub(began),
		spans:   told,
	}, nil
}

var errEnded = errors.New("it ended before the topic did")

// watcher follows a group's committed offsets.
type watcher struct {
	pid                   int
	brokers, group, topic string
	settings              settings
}

// line waits for the group to go through the topic and returns its state at
// the first commit and at the last.
func (w watcher) line(ctx context.Context, ended <-chan error) (first, last sample, err error) {
	transport := &kafkago.Transport{}
	defer transport.CloseIdleConnections()
	client := &kafkago.Client{Addr: kafkago.TCP(w.brokers), Transport: transport}
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			return first, last, fmt.Errorf("%w: %v", errEnded, err)
		case <-ctx.Done():
			return first, last, fmt.Errorf("wait for commits: %w; %d of %d records", ctx.Err(), last.committed, w.settings.records)
		case <-tick.C:
		}
		if last, err = w.look(ctx, client); err != nil {
			return first, last, err
		}
		if first.committed == 0 {
			first = last
		}
		if last.committed >= int64(w.settings.records) {
			return first, last, nil
		}
	}
}

// coordinating tells whether the group's coordinator is just coming up, as it
// does for the first group of a new cluster.
func coordinating(err error) bool {
	return errors.Is(err, kafkago.GroupCoordinatorNotAvailable) ||
		errors.Is(err, kafkago.NotCoordinatorForGroup) ||
		errors.Is(err, kafkago.GroupLoadInProgress)
}

func (w watcher) look(ctx context.Context, client *kafkago.Client) (sample, error) {
	partitions := make([]int, w.settings.partitions)
	for i := range partitions {
		partitions[i] = i
	}
	answer, err := client.OffsetFetch(ctx, &kafkago.OffsetFetchRequest{
		GroupID: w.group, Topics: map[string][]int{w.topic: partitions},
	})
	s := sample{at: time.Now()}
	if err == nil {
		err = answer.Error
	}
	if coordinating(err) {
		return s, nil
	}
	if err != nil {
		return s, fmt.Errorf("fetch committed offsets: %w", err)
	}
	for _, p := range answer.Topics[w.topic] {
		s.committed += max(0, p.CommittedOffset)
	}
	s.cpu, err = cpuTime(w.pid)
	return s, err
}
