package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/kconsume/kconsume/test/kafka"
)

const (
	topicMain        = "chaos"
	topicDLQ         = topicMain + ".dlq"
	keysPerPartition = 150
	valueSize        = 160
)

// rig is what every mode stands on: a Kafka, a scratch folder, members.
type rig struct {
	settings
	kafka    *kafka.Cluster
	admin    *admin
	launcher *launcher
	dir      string // short: sockets lie below it
	journals string
	members  []*member
}

// newRig starts Kafka and creates the main topic.
func newRig(ctx context.Context, s settings, nodes, partitions, replication int) (_ *rig, err error) {
	r := &rig{settings: s, launcher: newLauncher()}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close(false))
		}
	}()
	if r.dir, err = os.MkdirTemp("", "kchaos-"); err != nil {
		return nil, fmt.Errorf("make scratch folder: %w", err)
	}
	r.journals = filepath.Join(r.dir, "journals")
	if err := os.Mkdir(r.journals, 0o755); err != nil {
		return nil, fmt.Errorf("make journals' folder: %w", err)
	}
	r.kafka, err = kafka.Open(ctx, kafka.Options{Nodes: nodes, Properties: map[string]string{
		// The group's offsets survive what the records survive.
		"min.insync.replicas":          fmt.Sprint(max(1, replication-1)),
		"broker.session.timeout.ms":    "3000",
		"broker.heartbeat.interval.ms": "500",
		// A follower that was away must not hold up the next fault for long.
		"replica.lag.time.max.ms": "5000",
	}})
	if err != nil {
		return nil, err
	}
	r.admin = newAdmin(r.kafka.Bootstrap())
	return r, r.kafka.CreateTopic(ctx, kafkago.TopicConfig{
		Topic: topicMain, NumPartitions: partitions, ReplicationFactor: replication,
	})
}

// gate is the name that the gates' files begin with.
func (r *rig) gate() string { return filepath.Join(r.dir, "gate") }

// open opens the gate for even (0) or odd (1) numbers.
func (r *rig) open(parity int) error {
	if err := os.WriteFile(fmt.Sprint(r.gate(), ".", parity), nil, 0o644); err != nil {
		return fmt.Errorf("open gate: %w", err)
	}
	return nil
}

// shut shuts both gates.
func (r *rig) shut() error {
	var errs []error
	for parity := range 2 {
		if err := os.Remove(fmt.Sprint(r.gate(), ".", parity)); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("shut gate: %w", err))
		}
	}
	return errors.Join(errs...)
}

// join starts one more member.
func (r *rig) join(flags ...string) (*member, error) {
	m := &member{rig: r, name: fmt.Sprintf("m%d", len(r.members)+1), flags: flags}
	r.members = append(r.members, m)
	return m, m.start()
}

// close ends every process. keep leaves the scratch folder for a person to look at.
func (r *rig) close(keep bool) error {
	for _, m := range r.members {
		m.kill()
	}
	r.launcher.close()
	var errs []error
	if r.admin != nil {
		r.admin.close()
	}
	if r.kafka != nil {
		errs = append(errs, r.kafka.Close())
	}
	if !keep && r.dir != "" {
		errs = append(errs, os.RemoveAll(r.dir))
	}
	return errors.Join(errs...)
}

// until polls a condition, within a bound.
func until(ctx context.Context, patience time.Duration, what string, ok func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not within %v: %s", patience, what))
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		done, err := ok(ctx)
		if done && err == nil {
			return nil
		}
		if err != nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("wait: %w", context.Cause(ctx)), last)
		case <-tick.C:
		}
	}
}

// tierTopic is the retry topic of a delay.
func tierTopic(delay string) string { return topicMain + ".retry." + delay }

// stageOf is the stage's name, as a handler is told it, of a topic.
func stageOf(topic string) string {
	if topic == topicMain {
		return "main"
	}
	return strings.TrimPrefix(topic, topicMain+".")
}
