package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// scrapeEvery is how often metrics are read where they are on.
const scrapeEvery = time.Second

// watched are kconsume's runs of one pair with more and more to be seen of it:
// nothing, metrics, and besides those all deliveries traced, or one of a hundred.
func (s settings) watched(brokers, topic, dir, collector string, pair int) ([]program, error) {
	var list []program
	for i, c := range []struct {
		name    string
		metrics bool
		traces  []string
	}{
		{name: "nothing"},
		{name: "metrics", metrics: true},
		{name: "metrics, traces 1 %", metrics: true, traces: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + collector, "OTEL_TRACES_SAMPLER=parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG=0.01"}},
		{name: "metrics, traces", metrics: true, traces: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + collector}},
	} {
		p := s.kconsumeRun(brokers, topic, dir, fmt.Sprintf("watched-%d-%d", pair, i))
		p.name = c.name
		p.env = append(p.env, c.traces...)
		if !c.metrics {
			p.args = append(p.args, "--metrics", "")
		} else {
			address, err := freeAddress()
			if err != nil {
				return nil, err
			}
			p.args = append(p.args, "--metrics", address)
			p.metrics = "http://" + address + "/metrics"
		}
		list = append(list, p)
	}
	return list, nil
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	return l.Addr().String(), l.Close()
}

// sink takes traces as a collector on another machine does: at no cost here but
// for the reading.
type sink struct {
	server  *http.Server
	address string
	serving sync.WaitGroup
}

func openSink() (*sink, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for traces: %w", err)
	}
	s := &sink{address: "http://" + l.Addr().String()}
	s.server = &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
	})}
	s.serving.Go(func() { _ = s.server.Serve(l) }) // it ends with close
	return s, nil
}

func (s *sink) close() error {
	err := s.server.Close()
	s.serving.Wait()
	return err
}

// spans are what a run said of its spans.
type spans struct{ sent, dropped float64 }

// scraper reads a program's metrics, as Prometheus would.
type scraper struct {
	running sync.WaitGroup
	stop    context.CancelFunc
	url     string
}

func scrape(ctx context.Context, url string) *scraper {
	ctx, stop := context.WithCancel(ctx)
	s := &scraper{stop: stop, url: url}
	if url == "" {
		return s
	}
	s.running.Go(func() {
		tick := time.NewTicker(scrapeEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				_, _ = s.read(ctx) // it may not be up yet
			}
		}
	})
	return s
}

// end stops it, and returns what the metrics say last.
func (s *scraper) end(ctx context.Context) (spans, error) {
	s.stop()
	s.running.Wait()
	if s.url == "" {
		return spans{}, nil
	}
	return s.read(ctx)
}

func (s *scraper) read(ctx context.Context) (got spans, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
	if err != nil {
		return got, fmt.Errorf("read metrics: %w", err)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return got, fmt.Errorf("read metrics: %w", err)
	}
	defer func() { err = errors.Join(err, res.Body.Close()) }()
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		to := map[string]*float64{"kconsume_trace_spans_sent_total": &got.sent, "kconsume_trace_spans_dropped_total": &got.dropped}[strings.SplitN(name, "{", 2)[0]]
		if to == nil {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return got, fmt.Errorf("read metrics: %w", err)
		}
		*to += n
	}
	return got, nil
}
