package main

import (
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/kconsume/kconsume/test/observe/board/grafana"
)

//go:embed page
var files embed.FS

// width is the page's, in pixels: what a wide screen has beside Grafana's menu.
const width = 1600

// eventSteps are the points of time at which Grafana asks for events.
const eventSteps = 100

// paper is all that the page draws from.
type paper struct {
	Dashboard json.RawMessage `json:"dashboard"`
	From      int64           `json:"from"` // ms
	To        int64           `json:"to"`
	Answers   map[int][]reply `json:"answers"` // by the panel's id
	Events    []event         `json:"events"`
}

// reply is what one query of a panel was answered.
type reply struct {
	RefID  string   `json:"refId"`
	Format string   `json:"format"`
	Step   int64    `json:"step"` // ms; 0 = asked for one moment
	Names  []string `json:"names"`
	Series []series `json:"series"`
}

// event is an annotation.
type event struct {
	Name  string `json:"name"` // of the query
	Color string `json:"color"`
	Title string `json:"title"`
	From  int64  `json:"from"` // ms
	To    int64  `json:"to"`
}

// draw asks all that the dashboard asks, and saves the page as a picture.
func (s settings) draw(ctx context.Context, p *prometheus) error {
	board, err := grafana.Read(s.dashboard)
	if err != nil {
		return err
	}
	from, to := p.from, p.to
	if s.at > 0 {
		to = from.Add(s.at)
	}
	all := paper{Dashboard: board.Text, From: from.UnixMilli(), To: to.UnixMilli(), Answers: map[int][]reply{}, Events: []event{}}
	for _, panel := range board.Panels {
		for _, target := range panel.Targets {
			r, err := p.reply(ctx, panel, target, from, to)
			if err != nil {
				return fmt.Errorf("panel %s: %w", panel.Title, err)
			}
			all.Answers[panel.ID] = append(all.Answers[panel.ID], r)
		}
	}
	for _, a := range board.Annotations.List {
		events, err := p.events(ctx, a, from, to)
		if err != nil {
			return fmt.Errorf("annotation %s: %w", a.Name, err)
		}
		all.Events = append(all.Events, events...)
	}
	index, err := s.write(ctx, all)
	if err != nil {
		return err
	}
	return s.shoot(ctx, index)
}

// reply asks one query of a panel.
func (p *prometheus) reply(ctx context.Context, panel grafana.Panel, t grafana.Target, from, to time.Time) (reply, error) {
	least := dataSource
	if panel.Interval != "" {
		d, err := time.ParseDuration(panel.Interval)
		if err != nil {
			return reply{}, fmt.Errorf("read interval: %w", err)
		}
		least = max(least, d)
	}
	step := grafana.Step(to.Sub(from), width*panel.GridPos.W/24, least)
	r := reply{RefID: t.RefID, Format: cmp.Or(t.Format, "time_series"), Step: step.Milliseconds(), Names: []string{}}
	expr, err := grafana.Variables{Job: ".+", Interval: step, Scrape: dataSource}.Expand(t.Expr)
	if err != nil {
		return reply{}, err
	}
	if t.Instant {
		r.Step = 0
		r.Series, err = p.instant(ctx, expr, to)
	} else {
		r.Series, err = p.over(ctx, expr, from, to, step)
	}
	for _, s := range r.Series {
		r.Names = append(r.Names, grafana.Legend(t.LegendFormat, s.Labels))
	}
	return r, err
}

// events are an annotation's: points of a series that are one step apart are one.
func (p *prometheus) events(ctx context.Context, a grafana.Annotation, from, to time.Time) ([]event, error) {
	if !a.Enable {
		return nil, nil
	}
	least, err := time.ParseDuration(cmp.Or(a.Step, "1s"))
	if err != nil {
		return nil, fmt.Errorf("read step: %w", err)
	}
	step := grafana.Step(to.Sub(from), eventSteps, max(least, dataSource))
	expr, err := grafana.Variables{Job: ".+", Interval: step, Scrape: dataSource}.Expand(a.Expr)
	if err != nil {
		return nil, err
	}
	found, err := p.over(ctx, expr, from, to, step)
	var all []event
	for _, s := range found {
		title := grafana.Legend(a.TitleFormat, s.Labels)
		last := -1
		for _, point := range s.Points {
			at := int64(point[0])
			switch {
			case point[1] <= 0:
				continue
			case last >= 0 && at-all[last].To <= step.Milliseconds():
				all[last].To = at
			default:
				last, all = len(all), append(all, event{a.Name, a.IconColor, title, at, at})
			}
		}
	}
	return all, err
}

// write lays the page, with all that it needs, in the folder to keep.
func (s settings) write(ctx context.Context, all paper) (index string, err error) {
	text, err := json.Marshal(all)
	if err != nil {
		return "", fmt.Errorf("write what the page draws from: %w", err)
	}
	cmd := exec.CommandContext(ctx, filepath.Join(s.sources, "test/observe/board/echarts.sh"), filepath.Join(s.kept, "npm"))
	cmd.Stderr = os.Stderr
	library, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("install the chart library: %w; is -sources the folder of this repository?", err)
	}
	script, err := os.ReadFile(strings.TrimSpace(string(library)))
	if err != nil {
		return "", fmt.Errorf("read the chart library: %w", err)
	}
	dir := filepath.Join(s.kept, "page")
	sub, err := fs.Sub(files, "page")
	err = errors.Join(err, os.RemoveAll(dir))
	if err == nil {
		err = os.CopyFS(dir, sub)
	}
	if err == nil {
		err = errors.Join(os.WriteFile(filepath.Join(dir, "echarts.js"), script, 0o644),
			os.WriteFile(filepath.Join(dir, "paper.js"), fmt.Appendf(nil, "const paper = %s;\n", text), 0o644))
	}
	if err != nil {
		return "", fmt.Errorf("write the page: %w", err)
	}
	return filepath.Join(dir, "index.html"), nil
}

// shoot saves a picture of the page, unless there is something on the dashboard
// that the page cannot draw.
func (s settings) shoot(ctx context.Context, index string) error {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WSURLReadTimeout(2*time.Minute))
	allocator, stop := chromedp.NewExecAllocator(ctx, options...)
	defer stop()
	// What it does not know of the browser's own events is nothing to us.
	ctx, end := chromedp.NewContext(allocator, chromedp.WithErrorf(func(string, ...any) {}))
	defer end()
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	var height int
	var problems []string
	if err := chromedp.Run(ctx, emulation.SetDeviceMetricsOverride(width, 900, 1, false), chromedp.Navigate("file://"+index),
		chromedp.WaitReady("body.drawn", chromedp.ByQuery), chromedp.Evaluate("problems", &problems), chromedp.Evaluate(fmt.Sprintf("heightOf(%d)", s.rows), &height)); err != nil {
		return fmt.Errorf("draw the page: %w", err)
	}
	if len(problems) > 0 {
		return fmt.Errorf("draw the dashboard:\n%s", strings.Join(problems, "\n"))
	}
	var png []byte
	if err := chromedp.Run(ctx, chromedp.ActionFunc(func(ctx context.Context) (err error) {
		clip := page.Viewport{Width: width, Height: float64(height), Scale: 1}
		png, err = page.CaptureScreenshot().WithClip(&clip).WithCaptureBeyondViewport(true).Do(ctx)
		return err
	})); err != nil {
		return fmt.Errorf("take the picture: %w", err)
	}
	if err := os.WriteFile(s.picture, png, 0o644); err != nil {
		return fmt.Errorf("save the picture: %w", err)
	}
	fmt.Printf("%s: %d × %d, %d KiB; the page is %s\n", s.picture, width, height, len(png)/1024, index)
	return nil
}
