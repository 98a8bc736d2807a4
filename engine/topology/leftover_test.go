package topology

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

func TestLeftovers(t *testing.T) {
	with := func(template string, topics []string, retry ...time.Duration) Config {
		c := config(topics, retry...)
		c.RetryTopic = template
		return c
	}
	for _, c := range []struct {
		name  string
		cfg   Config
		there []string
		want  []string // "line stage topic delay"
	}{
		{"a tier that is gone", config([]string{"t"}, 5*time.Second), []string{"t", "t.retry.5s", "t.retry.30s", "t.retry.2m", "t.dlq"},
			[]string{"t retry.2m t.retry.2m 2m0s", "t retry.30s t.retry.30s 30s"}},
		{"no tier is left", config([]string{"t"}), []string{"t.retry.5s"}, []string{"t retry.5s t.retry.5s 5s"}},
		{"only our spelling", config([]string{"t"}), []string{
			"t.retry.60s", "t.retry.0s", "t.retry.05s", "t.retry.1.5s", "t.retry.-1s", "t.retry.1h30m", "t.retry.s", "t.retry.5", "t.retry.5sx", "t.retry.",
			"t.retry.99999999999999999999h", "xt.retry.5s", "t.retry.5d", "t.retry.1000ms", "t.replay", "t.retry.500ms", "t.retry.1m", "t.retry.24h"},
			[]string{"t retry.1m t.retry.1m 1m0s", "t retry.24h t.retry.24h 24h0m0s", "t retry.500ms t.retry.500ms 500ms"}},
		{"another line's main topic", config([]string{"t", "t.retry.1h"}), []string{"t.retry.1h", "t.retry.1h.retry.5s"}, []string{"t.retry.1h retry.5s t.retry.1h.retry.5s 5s"}},
		{"only our group's", with("{topic}.{group}.retry.{delay}", []string{"t"}), []string{"t.billing.retry.5s", "t.other.retry.5s"}, []string{"t retry.5s t.billing.retry.5s 5s"}},
		{"the delay in front and twice", with("{delay}.{topic}.{delay}", []string{"t"}), []string{"5s.t.5s", "5s.t.6s", "5m.t.5m", "5ms.t.5ms"},
			[]string{"t retry.5m 5m.t.5m 5m0s", "t retry.5ms 5ms.t.5ms 5ms", "t retry.5s 5s.t.5s 5s"}},
		{"no delay in the name", with("{topic}.again", []string{"t"}), []string{"t.again"}, []string{"t retry t.again 168h0m0s"}},
		{"no delay in the name, in use", with("{topic}.again", []string{"t"}, time.Second), []string{"t.again"}, nil},
		{"one name for two lines", with("{group}.{delay}", []string{"t", "u"}), []string{"billing.5s"}, []string{"t retry.5s billing.5s 5s"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			top, err := New(c.cfg)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for i, stages := range top.Leftovers(c.there) {
				for _, s := range stages {
					if !s.Leftover || s.Tier != 0 {
						t.Errorf("%+v is not marked", s)
					}
					got = append(got, fmt.Sprint(top.Lines[i].Topic, " ", s.Name, " ", s.Topic, " ", s.Delay))
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

// Every tier that a release made is a leftover of a configuration without it.
func FuzzLeftovers(f *testing.F) {
	f.Add("{topic}.retry.{delay}", int64(5000), "t.retry.5s")
	f.Add("{delay}{delay}", int64(90), "90ms90ms")
	f.Add("{topic}.{", int64(1), "t.")
	f.Fuzz(func(t *testing.T, template string, ms int64, name string) {
		c := config([]string{"t"}, time.Duration(ms)*time.Millisecond)
		c.RetryTopic = template
		had, err := New(c)
		c.Retry = nil
		has, err2 := New(c)
		if err2 != nil {
			return
		}
		has.Leftovers([]string{name})
		if err != nil {
			return
		}
		tier := had.Lines[0].Tiers()[0]
		got := has.Leftovers([]string{tier.Topic})[0]
		if len(got) != 1 || got[0].Topic != tier.Topic || got[0].Delay != tier.Delay && got[0].Delay != unknownDelay {
			t.Errorf("tier %+v: leftovers %+v", tier, got)
		}
	})
}
