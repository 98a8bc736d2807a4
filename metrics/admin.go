package metrics

import "github.com/prometheus/client_golang/prometheus"

// Admin are the collectors of the admin API.
type Admin struct {
	Requests *prometheus.CounterVec // route (the pattern, not the path), status ("2xx")
	Denied   *prometheus.CounterVec // reason: unknown, role, host, cross_origin
}

// NewAdmin makes the collectors and registers them with r, unless r is nil.
func NewAdmin(r prometheus.Registerer) *Admin {
	a := &Admin{
		Requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kconsume_admin_requests_total", Help: "Requests to the admin API that were let in, by route and kind of answer.",
		}, []string{"route", "status"}),
		Denied: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kconsume_admin_denied_total", Help: "Requests to the admin API that were turned away.",
		}, []string{"reason"}),
	}
	for _, reason := range []string{"unknown", "role", "host", "cross_origin"} {
		a.Denied.WithLabelValues(reason) // at 0: the first is an increase
	}
	if r != nil {
		r.MustRegister(a.Requests, a.Denied)
	}
	return a
}
