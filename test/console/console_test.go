// Package console looks at a daemon's console in a real browser, on real Kafka
// with thousands of dead letters.
package console

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/kconsume/kconsume/test/kafka"
	"github.com/kconsume/kconsume/test/operate/lab"
	kafkago "github.com/segmentio/kafka-go"
)

var (
	broker kafka.Shared
	bin    string
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	var err error
	if bin, err = lab.Build(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(bin)
	return broker.Run(m)
}

// seeded is a daemon with n dead letters in its DLQ.
func seeded(t *testing.T, topic string, n int, more ...lab.Failure) *lab.Daemon {
	t.Helper()
	const partitions = 4
	c := broker.Cluster(t)
	for _, cfg := range []kafkago.TopicConfig{{Topic: topic, NumPartitions: partitions, ReplicationFactor: 1}, lab.DLQ(topic, partitions)} {
		if err := c.CreateTopic(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
	}
	group := topic + "-group"
	l := lab.Letters{Topic: topic, Group: group, Partitions: partitions, N: n, Failures: more}
	if err := l.Write(t.Context(), c.Bootstrap()); err != nil {
		t.Fatal(err)
	}
	return lab.Start(t, lab.Options{Bin: bin, Bootstrap: c.Bootstrap(), Group: group, Topic: topic})
}

// browser is a real Chromium, with or without scripts.
type browser struct {
	t   *testing.T
	ctx context.Context
	url string
}

func open(t *testing.T, url string, scripts bool) *browser {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WindowSize(1400, 900), chromedp.WSURLReadTimeout(2*time.Minute))
	allocator, stop := chromedp.NewExecAllocator(t.Context(), options...)
	// What it does not know of the browser's own events is nothing to us.
	ctx, end := chromedp.NewContext(allocator, chromedp.WithErrorf(func(string, ...any) {}))
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	t.Cleanup(func() { cancel(); end(); stop() })
	b := &browser{t, ctx, url}
	b.do(network.Enable(), emulation.SetScriptExecutionDisabled(!scripts))
	return b
}

func (b *browser) do(actions ...chromedp.Action) {
	b.t.Helper()
	if err := chromedp.Run(b.ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// login shows a token.
func (b *browser) login(token string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.url+"/"), chromedp.SendKeys("input[name=token]", token, chromedp.ByQuery), chromedp.Click("form.login button", chromedp.ByQuery),
		chromedp.WaitVisible("nav", chromedp.ByQuery))
}

// text is what an element says.
func (b *browser) text(selector string) (s string) {
	b.t.Helper()
	b.do(chromedp.Text(selector, &s, chromedp.ByQuery))
	return s
}

// at is the page's path.
func (b *browser) at() string {
	b.t.Helper()
	var url string
	b.do(chromedp.Location(&url))
	return strings.TrimPrefix(url, b.url)
}

// shot saves a picture of a whole page.
func (b *browser) shot(name string) {
	b.t.Helper()
	dir := os.Getenv("KCONSUME_SHOTS")
	if dir == "" {
		return
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		b.t.Fatal(err)
	}
	var png []byte
	b.do(chromedp.FullScreenshot(&png, 100))
	if err := os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// TestTheWholeWay finds the group, looks at a record, plans with a canary,
// applies, sees it succeed, and reads the audit: with scripts and without.
func TestTheWholeWay(t *testing.T) {
	for _, scripts := range []bool{true, false} {
		name, topic := "scripts", "orders"
		if !scripts {
			name, topic = "no_scripts", "refunds"
		}
		t.Run(name, func(t *testing.T) {
			d := seeded(t, topic, 5000)
			b := open(t, d.URL, scripts)
			b.login(lab.OperatorToken)
			dlq := topic + ".dlq"
			until(t, b, "/", ".pipeline", "main", "dead letters", "5\u202f000")
			b.shot(name + "-overview")

			until(t, b, "/dlq/"+dlq, "table.rows", "gateway payments answered # after # ms: busy", "orders@1.4.2")
			b.shot(name + "-groups")
			b.do(chromedp.Click(`//a[contains(., "gateway payments")]`, chromedp.BySearch), chromedp.WaitVisible("fieldset.act", chromedp.ByQuery))
			b.shot(name + "-messages")
			b.do(chromedp.Click("table.rows tbody tr th a", chromedp.ByQuery), chromedp.WaitVisible("ol.timeline", chromedp.ByQuery))
			if text := b.text("main"); !strings.Contains(text, "gateway payments answered 503") || !strings.Contains(text, `"customer":"<b>Ada</b>"`) || !strings.Contains(text, "null") {
				t.Errorf("the message's page says %s", text)
			}
			b.shot(name + "-message")
			b.do(chromedp.Click(`//a[. = "those that failed alike"]`, chromedp.BySearch), chromedp.WaitVisible("fieldset.act", chromedp.ByQuery))
			b.do(chromedp.SendKeys("input[name=limit]", "25", chromedp.ByQuery), chromedp.SendKeys("input[name=reason]", "the gateway is back", chromedp.ByQuery),
				chromedp.Click("fieldset.act button", chromedp.ByQuery), chromedp.WaitVisible("button.primary", chromedp.ByQuery))
			if text := b.text("main"); !strings.Contains(text, "25") || !strings.Contains(text, "one first") || !strings.HasPrefix(b.at(), "/plans/") {
				t.Errorf("the plan at %s says %s", b.at(), text)
			}
			b.shot(name + "-plan")
			b.do(chromedp.Click("button.primary", chromedp.ByQuery), chromedp.WaitVisible("progress", chromedp.ByQuery))
			job := b.at()
			if !strings.HasPrefix(job, "/jobs/") {
				t.Fatalf("after apply at %s", job)
			}
			b.shot(name + "-job-running")
			until(t, b, job, "main", "done", "25 succeeded")
			b.shot(name + "-job")
			until(t, b, "/jobs", "table.rows", "25 / 25", "olga")
			b.shot(name + "-jobs")
			until(t, b, "/audit", "table.rows", "olga", "the gateway is back", "25")
			b.shot(name + "-audit")
			until(t, b, "/system", "main", "operator", "settings")
			b.shot(name + "-system")
			until(t, b, "/dlq/"+dlq+"/messages?status=succeeded", "table.rows", "succeeded")
		})
	}
}

// until opens a page until an element of it says all of that.
func until(t *testing.T, b *browser, path, selector string, want ...string) {
	t.Helper()
	missing, text := "", ""
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		b.do(chromedp.Navigate(b.url + path))
		b.do(chromedp.WaitReady("main", chromedp.ByQuery))
		var there bool
		missing = ""
		if text, there = b.find(selector); !there {
			missing = selector
			continue
		}
		for _, w := range want {
			if !strings.Contains(strings.ToLower(text), strings.ToLower(w)) {
				missing = w
			}
		}
		if missing == "" {
			return
		}
	}
	t.Fatalf("%s does not say %q: %s", path, missing, text)
}

// find is the text of an element, if it is there.
func (b *browser) find(selector string) (string, bool) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 500*time.Millisecond)
	defer cancel()
	var s string
	err := chromedp.Run(ctx, chromedp.Text(selector, &s, chromedp.ByQuery))
	return s, err == nil
}
