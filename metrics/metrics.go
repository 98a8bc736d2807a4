// Package metrics holds what kconsume tells Prometheus. No series is named by
// a key, an offset or a text: its labels are topics, stages and bounded words.
package metrics

import (
	"strings"
	"time"

	"github.com/kconsume/kconsume/plugin/printable"
	"github.com/prometheus/client_golang/prometheus"
)

// Outcome says what became of one delivery.
type Outcome string

const (
	OutcomeAck     Outcome = "ack"
	OutcomeDrop    Outcome = "drop"
	OutcomeRetry   Outcome = "retry"
	OutcomeDead    Outcome = "dead"
	OutcomeSkipped Outcome = "skipped" // another group's record on a shared topic
)

// Engine are the collectors of one engine. Its fields are safe for use by many
// goroutines; gauges are set by the engine's loop alone.
type Engine struct {
	// DeadLetters counts records that the broker acknowledged in a DLQ; its
	// topic is the DLQ's. It stands at 0 from the start so that the first dead
	// letter ever is an increase.
	DeadLetters *prometheus.CounterVec // topic
	// Messages counts deliveries that were settled; topic is the main topic.
	Messages *prometheus.CounterVec // topic, stage, outcome
	// Deliveries counts answers of the handler and Failures those that were none of
	// a success, by class (X-Error-Class) and by who answered, name@version. Of
	// handlers the latest few have series.
	Deliveries *prometheus.CounterVec // topic, stage, handler
	Failures   *prometheus.CounterVec // topic, stage, class, handler
	// Retries counts forwards that the broker acknowledged in a tier.
	Retries *prometheus.CounterVec // topic, tier
	// Lateness is how long after its due time a retry was sent to the handler, in seconds.
	Lateness *prometheus.HistogramVec // topic, stage

	InFlight prometheus.Gauge     // deliveries not yet answered
	Buffered prometheus.Gauge     // bytes fetched and not settled
	Waiting  *prometheus.GaugeVec // topic, stage: records read and not yet due
	Lag      *prometheus.GaugeVec // topic (the stage's own), partition: high watermark − committed

	Generations  prometheus.Counter     // generations of the group that were joined
	Commits      *prometheus.CounterVec // result: ok, or a bounded reason
	ForwardFails *prometheus.CounterVec // topic (the target), kind (temporary, configuration, cluster), reason
	FetchFails   *prometheus.CounterVec // topic, reason
	OffsetsLost  *prometheus.CounterVec // topic
	Foreign      *prometheus.CounterVec // topic: records on our topics without our headers

	TopicProblems *prometheus.GaugeVec // topic, problem: 1 while a topic cannot work
	Unowned       *prometheus.GaugeVec // topic: partitions with unread records that no member reads
	Orphans       prometheus.Gauge     // records on our topics that wait for groups without members

	// WriterRetries and WriterErrors are what kafka-go's writers count within
	// their calls, which may succeed in the end.
	WriterRetries *prometheus.CounterVec // topic
	WriterErrors  *prometheus.CounterVec // topic
	Emitted       *prometheus.CounterVec // topic: emitted records that the broker acknowledged
	EmitLost      *prometheus.CounterVec // topic, reason: emitted records that were given up
	EmitBuffer    prometheus.Gauge       // bytes of emitted records that no source waits for
}

// NewEngine makes the collectors and registers them with r, unless r is nil.
// It panics if r already has them: an engine needs a registry of its own.
func NewEngine(r prometheus.Registerer) *Engine {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	e := &Engine{
		DeadLetters: counter("kafka_dlq_messages_total", "Records sent to a dead letter queue.", "topic"),
		Messages:    counter("kconsume_messages_total", "Deliveries settled, by outcome: ack, drop, retry, dead, skipped (another group's record).", "topic", "stage", "outcome"),
		Deliveries:  counter("kconsume_deliveries_total", "Deliveries that the handler answered, by its name@version.", "topic", "stage", "handler"),
		Failures:    counter("kconsume_failures_total", "Deliveries that failed, by X-Error-Class and by the handler's name@version.", "topic", "stage", "class", "handler"),
		Retries:     counter("kconsume_retries_scheduled_total", "Records written to a retry tier.", "topic", "tier"),
		Lateness: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kconsume_retry_lateness_seconds", Help: "Time from a retry's due time to its delivery.",
			Buckets:                     []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
		}, []string{"topic", "stage"}),
		InFlight:     prometheus.NewGauge(prometheus.GaugeOpts{Name: "kconsume_in_flight", Help: "Deliveries sent to the handler and not yet answered."}),
		Buffered:     prometheus.NewGauge(prometheus.GaugeOpts{Name: "kconsume_buffer_bytes", Help: "Bytes fetched and not yet settled."}),
		Waiting:      gauge("kconsume_waiting_records", "Records read from a retry tier and not yet due.", "topic", "stage"),
		Lag:          gauge("kconsume_lag_records", "Records between the committed offset and the high watermark, of partitions owned.", "topic", "partition"),
		Generations:  prometheus.NewCounter(prometheus.CounterOpts{Name: "kconsume_generations_total", Help: "Generations of the consumer group joined."}),
		Commits:      counter("kconsume_commits_total", "Offset commits, by result.", "result"),
		ForwardFails: counter("kconsume_forward_failures_total", "Records whose write to a retry topic, a DLQ or an emitted topic failed.", "topic", "kind", "reason"),
		FetchFails:   counter("kconsume_fetch_failures_total", "Fetches of a partition that failed.", "topic", "reason"),
		OffsetsLost:  counter("kconsume_offsets_lost_total", "Committed offsets that no longer existed.", "topic"),
		Foreign:      counter("kconsume_foreign_records_total", "Records on a retry or replay topic without this project's headers.", "topic"),

		TopicProblems: gauge("kconsume_topic_problems", "1 while a topic's settings or partitions cannot work.", "topic", "problem"),
		Unowned:       gauge("kconsume_unowned_partitions", "Partitions with unread records that no member of the group reads.", "topic"),
		Orphans:       prometheus.NewGauge(prometheus.GaugeOpts{Name: "kconsume_orphaned_records", Help: "Records on retry topics that wait for groups without members."}),

		WriterRetries: counter("kconsume_writer_retries_total", "Writes that the client itself tried again.", "topic"),
		WriterErrors:  counter("kconsume_writer_errors_total", "Tries of writes that failed, those that the client tried again included.", "topic"),
		Emitted:       counter("kconsume_emitted_total", "Records emitted by handlers that the broker acknowledged.", "topic"),
		EmitLost:      counter("kconsume_emit_lost_total", "Records emitted by handlers that were given up.", "topic", "reason"),
		EmitBuffer:    prometheus.NewGauge(prometheus.GaugeOpts{Name: "kconsume_emit_buffer_bytes", Help: "Bytes of emitted records that wait in memory alone."}),
	}
	if r != nil {
		r.MustRegister(e.DeadLetters, e.Messages, e.Deliveries, e.Failures, e.Retries, e.Lateness, e.InFlight, e.Buffered, e.Waiting, e.Lag,
			e.Generations, e.Commits, e.ForwardFails, e.FetchFails, e.OffsetsLost, e.Foreign,
			e.TopicProblems, e.Unowned, e.Orphans,
			e.WriterRetries, e.WriterErrors, e.Emitted, e.EmitLost, e.EmitBuffer)
	}
	return e
}

// maxLabel bounds a label's value that a handler chose, in bytes.
const maxLabel = 100

// Label makes a text that comes from outside fit for a label.
func Label(s string) string {
	return printable.Line(strings.ToValidUTF8(s[:min(len(s), maxLabel)], "\uFFFD"))
}
