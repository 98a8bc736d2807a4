package main

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

// awaitMetric asks for /metrics until all series are there.
func awaitMetric(t *testing.T, address string, series ...string) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		_, text := get(t, address, "/metrics")
		missing := ""
		for _, s := range series {
			if !strings.Contains("\n"+text, "\n"+s) {
				missing = s
			}
		}
		if missing == "" {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("no %s in\n%s", missing, text)
		}
	}
}

func TestDaemonMetrics(t *testing.T) {
	_, brokers := newBroker(t, kfake.SeedTopics(2, "t"))
	p := newShell(t).start(t, daemonArgs(t, brokers, "--critical", "t", "--dlq-topic", "failed-{topic}")...)
	metrics := field(t, p.await(t, "msg=started"), "metrics")
	produce(t, brokers, "t", "ok")
	awaitMetric(t, metrics,
		`kafka_dlq_messages_total{topic="failed-t"} 0`,
		`kconsume_topic_critical{topic="failed-t"} 1`, `kconsume_topic_critical{topic="t"} 1`,
		`kconsume_build_info{`, `kconsume_handler_up 1`, `kconsume_handler_info{name="probe",version="v7"} 1`,
		`kconsume_handler_restarts_total{reason="exit"} 0`,
		`kconsume_handler_duration_seconds_count{stage="main",topic="t"} 1`,
		`kconsume_lag_seconds{stage="main",topic="t"} `,
		`kconsume_dlq_unresolved_records{topic="failed-t"} 0`, `kconsume_dlq_oldest_unresolved_age_seconds{topic="failed-t"} 0`,
	)
	p.signal(t, syscall.SIGTERM)
	if code := p.code(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestCriticalTopicsAreMainTopics(t *testing.T) {
	r := newShell(t).run(t, daemonArgs(t, "127.0.0.1:1", "--critical", "t,orders.dlq")...)
	if r.code != exitConfig || !strings.Contains(r.stderr, `"orders.dlq"`) || !strings.Contains(r.stderr, "--critical") {
		t.Errorf("%+v", r)
	}
}
