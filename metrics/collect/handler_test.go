package collect

import (
	"strings"
	"testing"

	"github.com/kconsume/kconsume/plugin/host"
	"github.com/prometheus/client_golang/prometheus"
)

func TestHandler(t *testing.T) {
	var s host.Status
	r := prometheus.NewRegistry()
	r.MustRegister(NewHandler(func() host.Status { return s }))
	for _, c := range []struct {
		state       host.State
		up, failing string
	}{{host.StateRunning, "1", "0"}, {host.StateDown, "0", "0"}, {host.StateFailing, "0", "1"}, {host.StateStopped, "0", "0"}} {
		s = host.Status{State: c.state}
		if up, failing := value(t, r, "kconsume_handler_up"), value(t, r, "kconsume_handler_crash_loop"); up != c.up || failing != c.failing {
			t.Errorf("%s: up %s, crash loop %s", c.state, up, failing)
		}
	}
	s = host.Status{
		InFlight: 5, Waiting: 4, Late: 3, Blamed: 2, BadAnswers: 6, OutputDropped: 7, Upgrades: 8, FailedUpgrades: 9,
		Ends: map[host.Cause]int{host.CauseSignal: 2}, Restarts: 2,
	}
	for series, want := range map[string]string{
		`kconsume_handler_in_flight`:                       "5",
		`kconsume_handler_waiting`:                         "4",
		`kconsume_handler_late_calls`:                      "3",
		`kconsume_handler_blamed_records_total`:            "2",
		`kconsume_handler_bad_answers_total`:               "6",
		`kconsume_handler_output_dropped_bytes_total`:      "7",
		`kconsume_handler_upgrades_total{result="ok"}`:     "8",
		`kconsume_handler_upgrades_total{result="failed"}`: "9",
		`kconsume_handler_restarts_total{reason="signal"}`: "2",
		`kconsume_handler_restarts_total{reason="exit"}`:   "0", // before the first one
	} {
		if got := value(t, r, series); got != want {
			t.Errorf("%s is %q, want %s", series, got, want)
		}
	}
	if text := exposed(r); strings.Contains(text, "kconsume_handler_info{") {
		t.Errorf("a handler without a name is told of:\n%s", text)
	}
}

// A handler says itself what it is called: whatever it says, the scrape works
// and the label is bounded.
func TestHostileHandlerName(t *testing.T) {
	r := prometheus.NewRegistry()
	r.MustRegister(NewHandler(func() host.Status {
		return host.Status{Name: "a\xff\n\x1b\u202e\"", Version: strings.Repeat("é", 1<<20)}
	}))
	text := exposed(r)
	if !strings.Contains(text, `kconsume_handler_info{name="a`+"\uFFFD"+`\\n\\x1b\\u202e\"",version="`) || len(text) > 8<<10 {
		t.Errorf("%d bytes: %.4000s", len(text), text)
	}
}
