package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/kconsume/kconsume/admin/dlq"
	"github.com/kconsume/kconsume/test/operate/lab"
)

// pagesOf makes a plan and a job, and names every page of the console.
func pagesOf(t *testing.T, d *lab.Daemon, topic string) map[string]string {
	t.Helper()
	api := d.As(lab.OperatorToken)
	base := "/v1/dlq/" + topic + ".dlq"
	plan := func(r dlq.PlanRequest) (p dlq.Plan) {
		r.Selection.Limit = 5
		lab.Until(t, "a plan is made", func() bool {
			got := api.Do(t, http.MethodPost, base+"/plans", r)
			return got.Status == http.StatusCreated && json.Unmarshal(got.Body, &p) == nil
		})
		return p
	}
	sent := plan(dlq.PlanRequest{Action: dlq.ActionReplay, Reason: "to have a job"})
	var j dlq.Job
	api.Want(t, http.StatusAccepted, http.MethodPost, "/v1/plans/"+sent.Digest+"/apply", nil, &j)
	lab.Until(t, "the job has ended", func() bool { api.Get(t, "/v1/jobs/"+j.ID, &j); return j.Status.Ended() })
	var page dlq.MessagePage
	api.Get(t, base+"/messages?status=new&order=oldest", &page)
	m := page.Messages[slices.IndexFunc(page.Messages, func(m dlq.Message) bool { return m.Replays == 0 })]
	return map[string]string{
		"overview": "/", "groups": "/dlq/" + topic + ".dlq", "all_groups": "/dlq/" + topic + ".dlq?all=1",
		"messages": "/dlq/" + topic + ".dlq/messages", "filtered": "/dlq/" + topic + ".dlq/messages?fingerprint=" + m.Fingerprint,
		"message": fmt.Sprintf("/dlq/%s.dlq/messages/%d/%d", topic, m.Partition, m.Offset),
		"hex":     fmt.Sprintf("/dlq/%s.dlq/messages/%d/%d?as=hex", topic, m.Partition, m.Offset),
		"plan":    "/plans/" + plan(dlq.PlanRequest{Action: dlq.ActionReplay, Reason: "to have a plan", Canary: true}).Digest,
		"job":     "/jobs/" + j.ID, "jobs": "/jobs", "audit": "/audit", "system": "/system", "error": "/nothing",
	}
}

// axe is the checker's script.
func axe(t *testing.T) string {
	t.Helper()
	home, err := filepath.Abs("../../build/axe")
	if err != nil {
		t.Fatal(err)
	}
	path, err := exec.Command("bash", "axe.sh", home).Output()
	if err != nil {
		t.Fatalf("install axe-core: %v", err)
	}
	script, err := os.ReadFile(strings.TrimSpace(string(path)))
	if err != nil {
		t.Fatal(err)
	}
	return string(script)
}

// violation is what axe finds.
type violation struct {
	ID, Impact, Help string
	Nodes            []struct {
		HTML           string `json:"html"`
		FailureSummary string `json:"failureSummary"`
	}
}

// axe-core finds nothing on any page, light and dark; at 200 % zoom and on a
// narrow screen nothing of a page lies beyond its edge.
func TestEverybodyCanUseIt(t *testing.T) {
	script := axe(t)
	d := seeded(t, "access", 500)
	pages := pagesOf(t, d, "access")
	b := open(t, d.URL, true)
	b.do(chromedp.Navigate(b.url+"/login"), chromedp.WaitVisible("form.login", chromedp.ByQuery))
	b.audit(script, "login")
	b.login(lab.OperatorToken)
	for name, path := range pages {
		for _, scheme := range []string{"light", "dark"} {
			b.do(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}),
				chromedp.EmulateViewport(1400, 900), chromedp.Navigate(b.url+path), chromedp.WaitReady("main", chromedp.ByQuery))
			b.audit(script, name+" "+scheme)
			b.shot("axe-" + name + "-" + scheme)
		}
		for _, width := range []int64{700, 360} { // 1400 pixels at 200 %, and a telephone
			b.do(chromedp.EmulateViewport(width, 450, chromedp.EmulateScale(2)), chromedp.Navigate(b.url+path), chromedp.WaitReady("main", chromedp.ByQuery))
			var over []string
			b.do(chromedp.Evaluate(`(() => {
				const edge = document.documentElement.clientWidth;
				if (document.documentElement.scrollWidth <= edge) return [];
				return Array.from(document.querySelectorAll("body *")).filter((e) => e.getBoundingClientRect().right > edge + 1 && !e.closest(".scroll, pre, dialog"))
					.slice(0, 5).map((e) => e.outerHTML.slice(0, 200)).concat("the page is " + document.documentElement.scrollWidth + " wide");
			})()`, &over))
			if len(over) > 0 {
				t.Errorf("%s at %d pixels: beyond the edge: %q", name, width, over)
			}
			b.shot(fmt.Sprintf("axe-%s-%d", name, width))
		}
	}
}

// audit runs axe on the page that is open.
func (b *browser) audit(script, name string) {
	b.t.Helper()
	var found struct{ Violations []violation }
	b.do(chromedp.Evaluate(script+"; undefined", nil), chromedp.Evaluate(`axe.run(document, {resultTypes: ["violations"]}).then((r) => ({violations: r.violations}))`, &found,
		func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
	for _, v := range found.Violations {
		b.t.Errorf("%s: %s (%s): %s: %+v", name, v.ID, v.Impact, v.Help, v.Nodes[:min(3, len(v.Nodes))])
	}
}

// All can be done from the keyboard: Tab comes to everything, in the order in
// which it stands, and is seen; keys of one letter move about.
func TestKeyboard(t *testing.T) {
	d := seeded(t, "keys", 200)
	pages := pagesOf(t, d, "keys")
	b := open(t, d.URL, true)
	b.login(lab.OperatorToken)
	for name, path := range pages {
		b.do(chromedp.Navigate(b.url+path), chromedp.WaitReady("main", chromedp.ByQuery))
		var want []string
		b.do(chromedp.Evaluate(`Array.from(document.querySelectorAll("a[href], button, input, select, summary, [tabindex='0']"))
			.filter((e) => !e.disabled && e.type !== "hidden" && !e.closest("fieldset:disabled, dialog:not([open])")).map((e, i) => { e.dataset.walk = i; return e.outerHTML.slice(0, 80); })`, &want))
		most := min(len(want), 40) // rows are all alike
		for range most {
			b.do(chromedp.KeyEvent(kb.Tab))
		}
		var last struct {
			Walk    string
			Visible bool
		}
		b.do(chromedp.Evaluate(`(() => { const e = document.activeElement, r = e.getBoundingClientRect(), s = getComputedStyle(e);
			return {walk: e.dataset.walk || e.tagName, visible: r.width > 0 && r.height > 0 && s.outlineStyle !== "none"}; })()`, &last))
		if w := fmt.Sprint(most - 1); last.Walk != w || !last.Visible {
			t.Errorf("%s: after %s tabs the focus is at %q (seen: %v): %q", name, w, last.Walk, last.Visible, want)
		}
	}

	focus := func() (at string) {
		t.Helper()
		b.do(chromedp.Evaluate(`(document.activeElement.closest("tr") ? "row " + Array.from(document.querySelectorAll("table.rows tbody tr")).indexOf(document.activeElement.closest("tr")) : document.activeElement.name || document.activeElement.tagName)`, &at))
		return at
	}
	b.do(chromedp.Navigate(b.url+pages["messages"]), chromedp.WaitReady("table.rows", chromedp.ByQuery))
	for _, step := range []struct{ key, at string }{{"j", "row 0"}, {"j", "row 1"}, {"j", "row 2"}, {"k", "row 1"}, {"/", "status"}} {
		b.do(chromedp.KeyEvent(step.key))
		if at := focus(); at != step.at {
			t.Errorf("after %q the focus is at %q, want %q", step.key, at, step.at)
		}
	}
	var ticked, shown bool
	b.do(chromedp.Navigate(b.url+pages["messages"]), chromedp.WaitReady("table.rows", chromedp.ByQuery), chromedp.KeyEvent("j"), chromedp.KeyEvent("x"),
		chromedp.Evaluate(`document.querySelector("table.rows tbody tr input").checked`, &ticked), chromedp.KeyEvent("?"), chromedp.Evaluate(`document.getElementById("help").open`, &shown))
	if !ticked || !shown {
		t.Errorf("x ticks: %v, ? shows the keys: %v", ticked, shown)
	}
	b.do(chromedp.KeyEvent(kb.Escape), chromedp.Evaluate(`document.getElementById("help").open`, &shown), chromedp.KeyEvent("k"), chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible("ol.timeline", chromedp.ByQuery))
	if shown {
		t.Error("Escape does not close the keys")
	}
	b.do(chromedp.Navigate(b.url+"/"), chromedp.WaitReady("main", chromedp.ByQuery), chromedp.KeyEvent("g"), chromedp.KeyEvent("j"), chromedp.WaitVisible(`nav a[href="/jobs"][aria-current]`, chromedp.ByQuery))
}

// Texts of records that would run or hide something are shown as they are.
func TestHostileTexts(t *testing.T) {
	const evil = `<script>window.ran = 1</script><img src=x onerror="window.ran = 2">`
	d := seeded(t, "hostile", 8, lab.Failure{Class: "permanent", Code: `"><script>window.ran=3</script>`, Message: evil + " \u202eevil\x1b[31m %d", Handler: `h<script>window.ran=4</script>@1`, Value: "perm\n" + evil, Hours: 1, Key: evil, Header: evil})
	pages := pagesOf(t, d, "hostile")
	b := open(t, d.URL, true)
	b.login(lab.OperatorToken)
	for name, path := range pages {
		b.do(chromedp.Navigate(b.url+path), chromedp.WaitReady("main", chromedp.ByQuery))
		var ran bool
		var scripts int
		var text string
		b.do(chromedp.Evaluate(`window.ran !== undefined`, &ran), chromedp.Evaluate(`document.querySelectorAll("main script, main img").length`, &scripts), chromedp.Text("main", &text, chromedp.ByQuery))
		if ran || scripts > 0 {
			t.Errorf("%s runs what a record says (%d elements)", name, scripts)
		}
		if strings.ContainsAny(text, "\u202e\x1b") {
			t.Errorf("%s shows text that hides or turns text", name)
		}
		if name == "message" {
			for _, want := range []string{evil, "⟨U+202E⟩"} {
				if !strings.Contains(text, want) {
					t.Errorf("%s does not show %q as text: %s", name, want, text)
				}
			}
			if n := strings.Count(text, "window.ran = 1"); n < 5 { // error, key, header's name and value, value
				t.Errorf("%s shows the text %d times: %s", name, n, text)
			}
		}
	}
}
