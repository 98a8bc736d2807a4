package collect

import (
	"github.com/kconsume/kconsume/metrics"
	"github.com/kconsume/kconsume/plugin/host"
	"github.com/prometheus/client_golang/prometheus"
)

// Handler exports a handler's processes as its host sees them at each scrape.
type Handler struct {
	status                                                                     func() host.Status
	up, failing, info, inFlight, waiting, late, restarts, blamed, bad, dropped *prometheus.Desc
	upgrades                                                                   *prometheus.Desc
}

// NewHandler exports what status returns. It must be safe for concurrent use.
func NewHandler(status func() host.Status) *Handler {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("kconsume_handler_"+name, help, labels, nil)
	}
	return &Handler{
		status:   status,
		up:       desc("up", "1 while a process of the handler runs and takes records."),
		failing:  desc("crash_loop", "1 while the handler's processes die whatever they are given: its records wait, none is blamed."),
		info:     desc("info", "1, labelled with the handler that runs, or ran last.", "name", "version"),
		inFlight: desc("in_flight", "Deliveries that the handler's processes have not answered."),
		waiting:  desc("waiting", "Deliveries that wait to be sent to a process of the handler."),
		late:     desc("late_calls", "Calls of the handler that run on past their deadline."),
		restarts: desc("restarts_total", "Processes of the handler that ended without being asked to or did not start, and those that an upgrade replaced, by reason.", "reason"),
		blamed:   desc("blamed_records_total", "Records found to kill the handler's process."),
		bad:      desc("bad_answers_total", "Answers of the handler to nothing that was asked, or to something twice."),
		dropped:  desc("output_dropped_bytes_total", "Bytes of the handler's output that were not logged."),
		upgrades: desc("upgrades_total", "Upgrades of the handler, by result: ok, failed (the processes of before stay).", "result"),
	}
}

// Describe names the metrics.
func (h *Handler) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{h.up, h.failing, h.info, h.inFlight, h.waiting, h.late, h.restarts, h.blamed, h.bad, h.dropped, h.upgrades} {
		ch <- d
	}
}

// Collect asks the host.
func (h *Handler) Collect(ch chan<- prometheus.Metric) {
	s := h.status()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	gauge(h.up, one(s.State == host.StateRunning))
	gauge(h.failing, one(s.State == host.StateFailing))
	if s.Name != "" {
		gauge(h.info, 1, metrics.Label(s.Name), metrics.Label(s.Version))
	}
	gauge(h.inFlight, float64(s.InFlight))
	gauge(h.waiting, float64(s.Waiting))
	gauge(h.late, float64(s.Late))
	for _, c := range host.Causes() {
		counter(h.restarts, float64(s.Ends[c]), string(c))
	}
	counter(h.blamed, float64(s.Blamed))
	counter(h.bad, float64(s.BadAnswers))
	counter(h.dropped, float64(s.OutputDropped))
	counter(h.upgrades, float64(s.Upgrades), "ok")
	counter(h.upgrades, float64(s.FailedUpgrades), "failed")
}

func one(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
