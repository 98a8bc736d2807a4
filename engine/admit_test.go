package engine

import (
	"testing"
	"time"

	"github.com/kconsume/kconsume/engine/history"
	"github.com/kconsume/kconsume/engine/record"
	"github.com/kconsume/kconsume/engine/topology"
	"github.com/kconsume/kconsume/plugin"
)

func TestAdmit(t *testing.T) {
	main := topology.Stage{Name: stageMain, Topic: "t"}
	tier := tiers(5 * time.Second)[0]
	replay := topology.Stage{Name: stageReplay, Topic: "t.replay"}
	now := int64(1_000_000)
	hs := func(kv ...string) []plugin.Header {
		var out []plugin.Header
		for i := 0; i < len(kv); i += 2 {
			out = append(out, plugin.Header{Key: kv[i], Value: []byte(kv[i+1])})
		}
		return out
	}
	for _, c := range []struct {
		name    string
		stage   topology.Stage
		headers []plugin.Header
		want    admission // meta is checked apart
		attempt int
	}{
		{"main", main, nil, admission{}, 1},
		{"main with forged headers", main, hs(history.HeaderAttempts, "2", history.HeaderGroup, "g"), admission{}, 1},
		{"main, a replay to the source", main, hs(history.HeaderGroup, "g", history.HeaderOrigTopic, "t", history.HeaderReplayID, "r"), admission{}, 1},
		{"main, another group's replay", main, hs(history.HeaderGroup, "h", history.HeaderOrigTopic, "t", history.HeaderReplayID, "r", history.HeaderAttempts, "2"), admission{}, 1},
		{"tier, ours", tier, hs(history.HeaderGroup, "g", history.HeaderAttempts, "1", history.HeaderDue, "1004000"), admission{due: 1_004_000}, 2},
		{"tier, due long past", tier, hs(history.HeaderGroup, "g", history.HeaderAttempts, "1", history.HeaderDue, "7"), admission{due: 7}, 2},
		{"tier, due in the year 3000", tier, hs(history.HeaderGroup, "g", history.HeaderAttempts, "1", history.HeaderDue, "32503680000000"), admission{due: 1_005_000}, 2},
		{"tier, no due", tier, hs(history.HeaderGroup, "g", history.HeaderAttempts, "1"), admission{due: 1_005_000}, 2},
		{"tier, another group's", tier, hs(history.HeaderGroup, "h", history.HeaderAttempts, "1"), admission{skip: true, group: "h"}, 1},
		{"tier, nobody's", tier, hs("a", "b"), admission{foreign: true}, 1},
		{"tier, no headers at all", tier, nil, admission{foreign: true}, 1},
		{"replay", replay, hs(history.HeaderGroup, "g", history.HeaderAttempts, "0", history.HeaderDue, "99999999"), admission{}, 1},
	} {
		rec := record.Record{Offset: 5, Timestamp: now, Headers: c.headers}
		got := admit(c.stage, "t", "g", &rec, 0, 3, now)
		attempt := 1
		if got.meta != nil {
			attempt = got.meta.Failed + 1
			got.meta = nil
		}
		if got != c.want || attempt != c.attempt {
			t.Errorf("%s: got %+v attempt %d, want %+v attempt %d", c.name, got, attempt, c.want, c.attempt)
		}
	}
}
