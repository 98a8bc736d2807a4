package conformance

import (
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kconsume/kconsume/plugin"
	"github.com/kconsume/kconsume/plugin/host"
)

// window is how many records are unanswered at most.
const window = 1000

// BenchmarkFrames carries records of 1 KiB to a handler that does nothing, in
// frames of exactly so many. One op is one record; the processor's time of the
// test's program stands for the host's.
func BenchmarkFrames(b *testing.B) {
	for _, language := range languages() {
		for _, n := range []int{1, 100} {
			b.Run(fmt.Sprintf("%s/frame=%d", language, n), func(b *testing.B) { benchmarkFrames(b, setUp(b, language), n) })
		}
	}
}

func benchmarkFrames(b *testing.B, path string, n int) {
	l := connect(b, path)
	s := l.open("Deliver")
	got := l.await(s, func(got replies) bool { return got.hello == 1 })
	send(b, s, appendStart(nil, 64))
	value, context := make([]byte, 1<<10), []byte("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	carry := func(total int) {
		credit := make(chan int, window) // answers of the receiving side
		go func() {
			defer close(credit)
			for answered := 0; answered < total; {
				clear(got.answer)
				if err := l.receive(s, &got); err != nil {
					b.Errorf("the stream ended with %v", err)
					return
				}
				answered += len(got.answer)
				credit <- len(got.answer)
			}
		}()
		open, next := 0, 0
		for next < total {
			if open+min(n, total-next) > window {
				open -= <-credit
				continue
			}
			var frame []byte
			for range min(n, total-next) {
				next++
				open++
				frame = appendHeader(frame, uint64(next), value, "traceparent", context)
			}
			send(b, s, frame)
		}
		for range credit {
		}
	}
	carry(20_000) // warm
	got.frames = 0
	m := measure(b, l.process.Process.Pid)
	b.ResetTimer()
	carry(b.N)
	b.StopTimer()
	m.report()
	b.ReportMetric(float64(got.frames)/float64(b.N), "answer-frames/record")
}

// BenchmarkHost carries the same records through the real host, which makes the
// frames, in batches as an engine gives them to it.
func BenchmarkHost(b *testing.B) {
	for _, language := range languages() {
		for _, n := range []int{1, 100} {
			b.Run(fmt.Sprintf("%s/batch=%d", language, n), func(b *testing.B) { benchmarkHost(b, setUp(b, language), n) })
		}
	}
}

func benchmarkHost(b *testing.B, path string, n int) {
	cfg := config(b, path)
	cfg.Logger = slog.New(slog.DiscardHandler)
	h, err := host.Start(b.Context(), cfg)
	if err != nil {
		b.Fatal(err)
	}
	defer h.Stop(b.Context())
	headers := []plugin.Header{{Key: "traceparent", Value: []byte("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")}}
	key, value := []byte("customer-0123456"), make([]byte, 1<<10)
	list := make([]plugin.Delivery, n)
	handle := uint64(0)
	carry := func(total int) {
		open, next, answered := 0, 0, 0
		for answered < total {
			for next < total && open+n <= window {
				batch := list[:min(n, total-next)]
				for i := range batch {
					next++
					handle++
					batch[i] = plugin.Delivery{Handle: handle, Timeout: 30 * time.Second, Message: plugin.Message{
						Topic: "orders.v1", Partition: 3, Offset: int64(handle), Time: time.UnixMilli(1_700_000_000_000),
						Key: key, Value: value, Headers: headers, Attempt: 1, MaxAttempts: 3, Stage: "main",
					}}
				}
				h.Deliver(batch)
				open += len(batch)
			}
			a := <-h.Answers()
			if len(a.Verdicts) > 0 {
				b.Fatalf("verdict %+v", a.Verdicts[0])
			}
			open -= len(a.Acked)
			answered += len(a.Acked)
		}
	}
	carry(20_000)
	m := measure(b, h.Status().PID)
	b.ResetTimer()
	carry(b.N)
	b.StopTimer()
	m.report()
}

// meter measures the processor's time of both ends.
type meter struct {
	b          *testing.B
	pid        int
	own, their time.Duration
}

func measure(b *testing.B, pid int) *meter {
	return &meter{b: b, pid: pid, own: ownTime(b), their: timeOf(b, pid)}
}

func (m *meter) report() {
	own, their := ownTime(m.b)-m.own, timeOf(m.b, m.pid)-m.their
	n := float64(m.b.N)
	m.b.ReportMetric(n/m.b.Elapsed().Seconds(), "records/s")
	m.b.ReportMetric(float64(own.Nanoseconds())/1e3/n, "host-µs/record")
	m.b.ReportMetric(float64(their.Nanoseconds())/1e3/n, "handler-µs/record")
}

func ownTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// timeOf is the time that a process's threads were on a processor.
func timeOf(b *testing.B, pid int) time.Duration {
	tasks := fmt.Sprintf("/proc/%d/task", pid)
	entries, err := os.ReadDir(tasks)
	if err != nil {
		b.Fatal(err)
	}
	var sum time.Duration
	for _, e := range entries {
		text, err := os.ReadFile(tasks + "/" + e.Name() + "/schedstat")
		if err != nil {
			continue // a thread that has just ended
		}
		first, _, _ := strings.Cut(string(text), " ")
		n, err := strconv.ParseInt(first, 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		sum += time.Duration(n)
	}
	return sum
}
