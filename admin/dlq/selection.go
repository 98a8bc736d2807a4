package dlq

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	"github.com/kconsume/kconsume/engine/topology"
)

// Bounds of a selection's texts, in bytes.
const (
	maxKeySought  = 64 << 10
	maxTextSought = 256
)

// check refuses a selection that cannot mean anything.
func (s *Selection) check() error {
	for _, st := range s.Statuses {
		if !slices.Contains(Statuses(), st) {
			return refuse(KindInvalid, "status %q: use %s", string(st), statusWords())
		}
	}
	switch {
	case len(s.Positions) > MaxPlan:
		return refuse(KindInvalid, "%d positions: name %d at most, or select by fingerprint", len(s.Positions), MaxPlan)
	case s.Limit < 0 || s.Limit > MaxPlan:
		return refuse(KindInvalid, "limit %d of the selection: use 1 to %d", s.Limit, MaxPlan)
	case s.Key != nil && len(*s.Key) > maxKeySought, len(s.Fingerprint) > maxTextSought, len(s.Class) > maxTextSought, len(s.Handler) > maxTextSought:
		return refuse(KindInvalid, "the selection is too long: a key has %d bytes at most, other texts %d", maxKeySought, maxTextSought)
	case s.Fingerprint == other:
		return refuse(KindInvalid, "fingerprint %q stands for those that are not told apart: select by class, handler or time", other)
	case !s.Since.IsZero() && !s.Until.IsZero() && !s.Since.Before(s.Until):
		return refuse(KindInvalid, "since %v is not before until %v", s.Since, s.Until)
	}
	for _, p := range s.Positions {
		if p.Partition < 0 || p.Offset < 0 {
			return refuse(KindInvalid, "position %v: partition and offset count from 0", p)
		}
	}
	return nil
}

func statusWords() string {
	var words []string
	for _, s := range Statuses() {
		words = append(words, string(s))
	}
	return strings.Join(words, ", ")
}

// digest tells selections apart; the limit is not part of it.
func (s *Selection) digest() string {
	c := *s
	c.Limit = 0
	return digestOf(c)[:16]
}

// digestOf hashes a value's JSON.
func digestOf(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return "" // numbers, texts and times only
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// replayTopic is the line's replay stage.
func replayTopic(l *topology.Line) string { return l.Stages[len(l.Stages)-1].Topic }
