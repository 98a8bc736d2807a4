package engine

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// said runs f and returns what it logged, without the times of day.
func said(t *testing.T, f func(p *problems)) (lines []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		p := newProblems(slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}})))
		f(&p)
		lines = strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	})
	return lines
}

// second lets a second pass, as the loop does.
func (p *problems) second() {
	time.Sleep(time.Second)
	p.tick(time.Now())
}

func TestProblemsAreToldOnChange(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(p *problems)
		want []string
	}{
		{"one that lasts", func(p *problems) {
			for range 100 {
				p.set("commit", "too slow")
				p.second()
			}
			p.set("commit", "")
			p.set("commit", "")
		}, []string{
			`level=WARN msg="too slow" what=commit`,
			`level=INFO msg=recovered what=commit times=100 lasted=1m40s`,
		}},
		{"one that becomes another", func(p *problems) {
			p.set("commit", "too slow")
			p.second()
			p.set("commit", "denied") // told when it is time
			for range 20 {
				p.second()
			}
			p.set("commit", "")
		}, []string{
			`level=WARN msg="too slow" what=commit`,
			`level=WARN msg=denied what=commit times=2`,
			`level=INFO msg=recovered what=commit times=2 lasted=21s`,
		}},
		{"one that says something else each time", func(p *problems) {
			for i := range 25 {
				p.set("fetch", fmt.Sprint("port ", i))
				p.second()
			}
		}, []string{
			`level=WARN msg="port 0" what=fetch`,
			`level=WARN msg="port 9" what=fetch times=10`,
			`level=WARN msg="port 19" what=fetch times=20`,
		}},
		{"one that comes and goes", func(p *problems) {
			for range 25 {
				p.set("fetch", "no leader")
				p.set("fetch", "")
				p.second()
			}
		}, []string{
			`level=WARN msg="no leader" what=fetch`,
			`level=INFO msg=recovered what=fetch times=1 lasted=0s`,
			`level=WARN msg="no leader" what=fetch`,
			`level=INFO msg=recovered what=fetch times=1 lasted=0s`,
			`level=WARN msg="no leader" what=fetch`,
			`level=INFO msg=recovered what=fetch times=1 lasted=0s`,
		}},
		{"what is no state", func(p *problems) {
			for i := range 25 {
				for range 1000 {
					p.once("answers", fmt.Sprint("to nothing ", i))
				}
				p.second()
			}
		}, []string{
			`level=WARN msg="to nothing 0" what=answers`,
			`level=WARN msg="to nothing 9" what=answers times=9999`,
			`level=WARN msg="to nothing 19" what=answers times=10000`,
		}},
		{"two, one of them grave", func(p *problems) {
			p.fault("topic t", "compacted")
			p.fault("topic t", "compacted")
			p.set("commit", "denied")
		}, []string{`level=ERROR msg=compacted what="topic t"`, `level=WARN msg=denied what=commit`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := said(t, c.do); strings.Join(got, "\n") != strings.Join(c.want, "\n") {
				t.Errorf("said\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

// What has been well for long, or was an event, is remembered no more.
func TestProblemsAreForgotten(t *testing.T) {
	said(t, func(p *problems) {
		for i := range 1000 {
			p.set(fmt.Sprint("a", i), "wrong")
			p.set(fmt.Sprint("a", i), "")
			p.once(fmt.Sprint("b", i), "happened")
		}
		if p.any() == "" {
			t.Error("what just happened is not told of")
		}
		for range 25 {
			p.second()
		}
		if len(p.of) != 0 || p.any() != "" {
			t.Errorf("%d are remembered: %s", len(p.of), p.any())
		}
	})
}
