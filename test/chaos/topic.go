package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/kconsume/kconsume/test/chaos/task"
)

// source is one record of the main topic as kcat, an independent client, reads it.
type source struct {
	number int64 // of the task; −1 = not one of ours
	at     int64 // unix ms
	do     task.Action
	hash   uint64 // of key and value
}

// forwarded is one record of a tier or the DLQ as kcat reads it.
type forwarded struct {
	place
	offset  int64
	at      int64 // unix ms: when the broker, or for the DLQ the writer, stamped it
	origin  record
	failed  int   // X-Retry-Attempts
	due     int64 // X-Retry-Due, unix ms, 0 = none
	class   string
	id      string
	hash    uint64
	foreign string // what is wrong with it, "" = nothing
}

// line is one record as kcat prints it.
type line struct {
	partition  int32
	offset, at int64
	key, value []byte
	headers    []byte
}

// kcatFormat holds only what cannot contain a tab or a line's end in our records.
const kcatFormat = `%p\t%o\t%T\t%k\t%s\t%h\n`

// kcat reads a whole topic up to its present end, in no order.
func kcat(ctx context.Context, brokers, topic string, each func(line) error) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, "kcat", "-C", "-b", brokers, "-t", topic, "-o", "beginning", "-e", "-q",
		"-X", "check.crcs=true", "-X", "fetch.wait.max.ms=50", "-f", kcatFormat)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("read %s: %w", topic, err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("run kcat: %w; make check installs it", err)
	}
	if err := eachLine(out, each); err != nil {
		cancel()
		_ = cmd.Wait() // killed
		return fmt.Errorf("read %s: %w", topic, err)
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("read %s with kcat: %w\n%s", topic, err, stderr.Bytes())
	}
	return nil
}

func eachLine(out io.Reader, each func(line) error) error {
	lines := bufio.NewScanner(out)
	lines.Buffer(make([]byte, 64<<10), 1<<20)
	for lines.Scan() {
		f := bytes.SplitN(lines.Bytes(), []byte{'\t'}, 6)
		if len(f) != 6 {
			return fmt.Errorf("kcat printed %.200q", lines.Bytes())
		}
		partition, err1 := strconv.ParseInt(string(f[0]), 10, 32)
		offset, err2 := strconv.ParseInt(string(f[1]), 10, 64)
		at, err3 := strconv.ParseInt(string(f[2]), 10, 64)
		if err1 != nil || err2 != nil || err3 != nil {
			return fmt.Errorf("kcat printed %.200q", lines.Bytes())
		}
		if err := each(line{int32(partition), offset, at, f[3], f[4], f[5]}); err != nil {
			return err
		}
	}
	return lines.Err()
}

// readSources reads the main topic: by partition, in offset order from 0 on.
func readSources(ctx context.Context, brokers, topic string, partitions int) ([][]source, error) {
	out := make([][]source, partitions)
	err := kcat(ctx, brokers, topic, func(l line) error {
		if int(l.partition) >= partitions || l.offset != int64(len(out[l.partition])) {
			return fmt.Errorf("offset %d of partition %d comes after %d records", l.offset, l.partition, len(out[l.partition]))
		}
		s := source{number: -1, at: l.at, hash: fingerprint(l.key, l.value)}
		if t, err := task.Parse(l.value); err == nil && t.Partition == l.partition {
			s.number, s.do = t.Number, t.Do
		}
		out[l.partition] = append(out[l.partition], s)
		return nil
	})
	return out, err
}

// readForwarded reads a tier or the DLQ, by partition and offset.
func readForwarded(ctx context.Context, brokers, topic string) ([]forwarded, error) {
	var out []forwarded
	err := kcat(ctx, brokers, topic, func(l line) error {
		out = append(out, l.forwarded(topic))
		return nil
	})
	slices.SortFunc(out, func(a, b forwarded) int {
		if a.partition != b.partition {
			return int(a.partition - b.partition)
		}
		return int(a.offset - b.offset)
	})
	return out, err
}

func (l *line) forwarded(topic string) forwarded {
	f := forwarded{place: place{topic, l.partition}, offset: l.offset, at: l.at, hash: fingerprint(l.key, l.value)}
	h := headersOf(string(l.headers))
	var n numeric
	f.origin = record{int32(n.of(h, "X-Original-Partition")), n.of(h, "X-Original-Offset")}
	f.failed = int(n.of(h, "X-Retry-Attempts"))
	if _, ok := h["X-Retry-Due"]; ok {
		f.due = n.of(h, "X-Retry-Due")
	}
	f.class, f.id = h["X-Error-Class"], h["X-Record-Id"]
	want := fmt.Sprintf("%s/%d/%d@%d", topicMain, f.origin.partition, f.origin.offset, n.of(h, "X-Original-Timestamp"))
	switch {
	case n.bad != "":
		f.foreign = "header " + n.bad + " is missing or no number"
	case h["X-Retry-Group"] != group || h["X-Original-Topic"] != topicMain || f.id != want:
		f.foreign = fmt.Sprintf("headers %.300s", l.headers)
	}
	return f
}

// headersOf reads what kcat prints of headers. No value of ours has a comma.
func headersOf(text string) map[string]string {
	h := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		if name, value, ok := strings.Cut(pair, "="); ok {
			h[name] = value
		}
	}
	return h
}

// numeric reads decimal headers and keeps the name of the first that is none.
type numeric struct{ bad string }

func (n *numeric) of(h map[string]string, name string) int64 {
	v, err := strconv.ParseInt(h[name], 10, 64)
	if err != nil && n.bad == "" {
		n.bad = name
	}
	return v
}

// fingerprint is FNV-1a over key and value, with their boundary.
func fingerprint(key, value []byte) uint64 {
	h := uint64(14695981039346656037)
	for _, part := range [][]byte{key, {0xff}, value} {
		for _, c := range part {
			h = (h ^ uint64(c)) * 1099511628211
		}
	}
	return h
}
