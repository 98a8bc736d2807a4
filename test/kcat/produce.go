package kcat

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kconsume/kconsume/plugin"
)

// AnyPartition leaves the choice to kcat.
const AnyPartition = -1

// Produce writes records to a partition and returns when all are acknowledged
// by all replicas. Of a record only Key, Value and Headers count. Runs of
// records with the same headers share a process. Further arguments go to kcat:
// -z zstd, -X transactional.id=a for one transaction a process.
func Produce(t testing.TB, brokers, topic string, partition int32, records []Record, args ...string) {
	t.Helper()
	for len(records) > 0 {
		m, err := modeOf(records[0])
		if err != nil {
			t.Fatal(err)
		}
		n := 1
		for n < len(records) && sameRun(m, records[0], records[n]) {
			n++
		}
		produce(t, m, records[:n], append([]string{
			"-P", "-b", brokers, "-t", topic, "-p", strconv.Itoa(int(partition)), "-q", "-X", "acks=all",
		}, args...))
		records = records[n:]
	}
}

// mode is how kcat must be called for a record's null and empty parts.
type mode int

const (
	plain        mode = iota // nothing is null; empty is empty
	nullable                 // -Z: what is empty becomes null
	emptyKeyOnly             // -Z -k '': the value becomes null, the key stays empty
)

func modeOf(r Record) (mode, error) {
	null := r.Key == nil || r.Value == nil
	switch {
	case !null:
		return plain, nil
	case r.Key == nil && r.Value != nil && len(r.Value) == 0:
		return 0, fmt.Errorf("produce with kcat: it cannot write a null key with an empty value; use another client")
	case r.Key != nil && len(r.Key) == 0:
		return emptyKeyOnly, nil
	default:
		return nullable, nil
	}
}

func sameRun(m mode, first, r Record) bool {
	next, err := modeOf(r)
	return err == nil && next == m && slices.EqualFunc(first.Headers, r.Headers, func(a, b plugin.Header) bool {
		return a.Key == b.Key && bytes.Equal(a.Value, b.Value) && (a.Value == nil) == (b.Value == nil)
	})
}

// produce writes records of one mode and one set of headers.
func produce(t testing.TB, m mode, records []Record, args []string) {
	t.Helper()
	// Random words as separators: no record holds them.
	keyEnd, end := rand.Text(), rand.Text()
	args = append(args, "-K", keyEnd, "-D", end)
	switch m {
	case nullable:
		args = append(args, "-Z")
	case emptyKeyOnly:
		args = append(args, "-Z", "-k", "")
	}
	for _, h := range records[0].Headers {
		arg, err := headerArg(h)
		if err != nil {
			t.Fatal(err)
		}
		args = append(args, "-H", arg)
	}
	var stdin bytes.Buffer
	for _, r := range records {
		stdin.Write(r.Key)
		stdin.WriteString(keyEnd)
		stdin.Write(r.Value)
		stdin.WriteString(end)
	}
	run(t, stdin.Bytes(), args...)
}

func headerArg(h plugin.Header) (string, error) {
	if h.Key == "" || strings.ContainsAny(h.Key, "=\x00") || bytes.IndexByte(h.Value, 0) >= 0 {
		return "", fmt.Errorf("produce with kcat: it cannot write header %q: %q; use another client", h.Key, h.Value)
	}
	if h.Value == nil {
		return h.Key, nil
	}
	return h.Key + "=" + string(h.Value), nil
}
