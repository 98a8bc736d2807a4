package host

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func jsonLog(w io.Writer) *slog.Logger {
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug - 4}))
}

func jsonValid(s string) bool { return json.Valid([]byte(s)) }

func TestOutputLevelAndFields(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{`{"@level":"warn","@message":"slow","@timestamp":"x","n":12345678901234567890}`, `"level":"WARN","msg":"slow","stream":"stderr","fields":{"n":12345678901234567890}`},
		{`{"@level":"trace","@message":"t"}`, `"level":"DEBUG-4","msg":"t","stream":"stderr"`},
		{`{"time":"x","level":"ERROR","msg":"boom","b":true,"a":"x"}`, `"level":"ERROR","msg":"boom","stream":"stderr","fields":{"a":"x","b":true}`},
		{`{"@message":5}`, `"level":"INFO","msg":"{\"@message\":5}"`},
		{`{"@level":"info","@message":"x"} and more`, `"level":"INFO","msg":"{\"@level`},
		{`[WARN] text`, `"level":"WARN","msg":"[WARN] text"`},
		{`panic: nil map`, `"level":"ERROR","msg":"panic: nil map"`},
		{"plain \xff text", `"level":"INFO","msg":"plain \\xff text"`},
		{strings.Repeat("x", lineLimit+1), `"cut":true`},
	} {
		var b bytes.Buffer
		o := newOutput(jsonLog(&b), new(atomic.Uint64))
		fmt.Fprintln(o.stream("stderr"), c.line)
		if !strings.Contains(b.String(), c.want) || !jsonValid(b.String()) {
			t.Errorf("%.60q was logged as %.300s, want %s", c.line, b.String(), c.want)
		}
	}
}

func TestOutputIsRateLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		o := newOutput(jsonLog(&b), new(atomic.Uint64))
		w := o.stream("stdout")
		for range linesAtOnce + 500 {
			fmt.Fprintln(w, "x")
		}
		if n := strings.Count(b.String(), "\n"); n != linesAtOnce {
			t.Errorf("%d lines logged at once, want %d", n, linesAtOnce)
		}
		b.Reset()
		time.Sleep(time.Second)
		for range 2 * linesPerSecond {
			fmt.Fprintln(w, "y")
		}
		if n := strings.Count(b.String(), `"msg":"y"`); n != linesPerSecond {
			t.Errorf("%d lines logged a second later, want %d", n, linesPerSecond)
		}
		o.Close()
		for _, want := range []string{`"lines":500`, fmt.Sprintf(`"lines":%d`, linesPerSecond)} {
			if !strings.Contains(b.String(), want) {
				t.Errorf("the log does not tell of the lines left out: no %s", want)
			}
		}
	})
}

func TestOutputTellsOnceASecondWhatIsLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		unlogged := new(atomic.Uint64)
		o := newOutput(jsonLog(&b), unlogged)
		w := o.stream("stdout")
		const seconds = 20
		for range seconds * 500 {
			fmt.Fprintln(w, "x")
			time.Sleep(2 * time.Millisecond)
		}
		o.Close()
		told := strings.Count(b.String(), "lines were left out")
		if logged := strings.Count(b.String(), `"msg":"x"`); told < 2 || told > seconds || logged+int(unlogged.Load()) != seconds*500 {
			t.Errorf("told %d times in %d seconds, %d lines logged, %d bytes not", told, seconds, logged, unlogged.Load())
		}
	})
}

func TestLastWords(t *testing.T) {
	for _, c := range []struct{ stderr, stdout, want string }{
		{"a\nb\n\n  \n", "c\n", "b"},
		{"starting\npanic: boom\n\ngoroutine 1 [running]:\nmain.main()\n", "", "panic: boom"},
		{"Traceback\n  File x\nValueError: bad", "", "ValueError: bad"},
		{"", "out\n", ""},
		{strings.Repeat("z", 1000), "", strings.Repeat("z", 300)},
	} {
		o := newOutput(slog.New(slog.DiscardHandler), new(atomic.Uint64))
		for name, text := range map[string]string{"stderr": c.stderr, "stdout": c.stdout} {
			w := o.stream(name)
			io.WriteString(w, text)
			w.Close()
		}
		if got := o.lastWords(); got != c.want {
			t.Errorf("last words of %.30q: %.40q, want %.40q", c.stderr, got, c.want)
		}
	}
}
