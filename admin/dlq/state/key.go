// Package state is what people and jobs did about dead letters, as it lies in
// the DLQ's state topic: one compacted partition, whose order says who was
// first. A View is that log applied in order; a Log follows it and writes to it.
//
// Every entry that changes something names the entry that it follows (After),
// and counts only if that one is still the latest of its key that counts: of
// two writers who saw the same, the first in the log wins, and the other's entry
// changes nothing. An entry holds all that is true after it, so that the last
// one which counts is enough once compaction has taken the others.
package state

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/kconsume/kconsume/engine/history"
)

// Prefixes of the keys.
const (
	prefixRec   = "rec/"
	prefixOut   = history.OutcomeKey
	prefixPlan  = "plan/"
	prefixJob   = "job/"
	prefixAudit = "audit/"
)

// ID names one dead letter for ever: its place, and an identity that tells it
// from a record that comes to lie at that place in another life of the topic.
type ID struct {
	Partition int32
	Offset    int64
	Identity  string
}

// String is PARTITION/OFFSET/IDENTITY.
func (id ID) String() string {
	return strconv.Itoa(int(id.Partition)) + "/" + strconv.FormatInt(id.Offset, 10) + "/" + id.Identity
}

// Key is the id's key in the log.
func (id ID) Key() string { return prefixRec + id.String() }

// ReplayID is what a job's copy of the dead letter carries.
func (id ID) ReplayID(job string) string {
	return history.ReplayID{Job: job, Partition: id.Partition, Offset: id.Offset, Identity: id.Identity}.String()
}

// ParseID reads PARTITION/OFFSET/IDENTITY.
func ParseID(text string) (ID, bool) {
	p, rest, ok1 := strings.Cut(text, "/")
	o, identity, ok2 := strings.Cut(rest, "/")
	partition, err1 := strconv.ParseInt(p, 10, 32)
	offset, err2 := strconv.ParseInt(o, 10, 64)
	id := ID{int32(partition), offset, identity}
	return id, ok1 && ok2 && err1 == nil && err2 == nil && partition >= 0 && offset >= 0 && identity != "" && id.String() == text
}

// ParseReplayID reads it: the job's id, and the dead letter's.
func ParseReplayID(text string) (job string, id ID, ok bool) {
	r, ok := history.ParseReplayID(text)
	return r.Job, ID{r.Partition, r.Offset, r.Identity}, ok
}

// Identity is a short hash of what makes a dead letter itself: its topic's id
// (zero where the broker tells none), the record's id and the time of its error.
func Identity(topic [16]byte, recordID string, errorTime int64) string {
	h := sha256.New()
	h.Write(topic[:])
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(errorTime))
	h.Write(n[:])
	h.Write([]byte(recordID))
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// Life is a topic's id as text, "" where the broker tells none.
func Life(topic [16]byte) string {
	if topic == ([16]byte{}) {
		return ""
	}
	return hex.EncodeToString(topic[:])
}
