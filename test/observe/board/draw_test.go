package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image/png"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kconsume/kconsume/test/observe/board/grafana"
)

const root = "../../.."

var (
	from = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	to   = from.Add(6 * time.Minute)
)

// oracle answers as a Prometheus does: values by the expression, of each step.
func oracle(t *testing.T, values func(expr string, step int) []string) *prometheus {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		expr, labels := r.FormValue("query"), map[string]string{"topic": "orders", "stage": "main", "handler": "orders@1", "class": "poison", "le": "0.5"}
		if expr == "broken" {
			fmt.Fprint(w, `{"status": "error", "error": "parse error"}`)
			return
		}
		result := map[string]any{"metric": labels}
		if strings.HasSuffix(r.URL.Path, "/query") {
			result["value"] = []any{1.5, values(expr, 0)[0]}
		} else {
			begin, _ := strconv.ParseFloat(r.FormValue("start"), 64)
			step, _ := strconv.ParseFloat(r.FormValue("step"), 64)
			var points [][2]any
			for i, v := range values(expr, int(step)) {
				if v != "" {
					points = append(points, [2]any{begin + float64(i)*step, v})
				}
			}
			result["values"] = points
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": map[string]any{"result": []any{result}}})
	}))
	t.Cleanup(s.Close)
	return &prometheus{address: strings.TrimPrefix(s.URL, "http://"), from: from, to: to}
}

func TestAsk(t *testing.T) {
	p := oracle(t, func(string, int) []string { return []string{"1", "NaN", "2.5", "+Inf"} })
	at := float64(from.UnixMilli())
	got, err := p.over(t.Context(), "a", from.Add(3*time.Second), to, 5*time.Second) // the start is put on a whole step
	if err != nil || len(got) != 1 || !reflect.DeepEqual(got[0].Points, [][2]float64{{at, 1}, {at + 10_000, 2.5}}) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err = p.instant(t.Context(), "a", to); err != nil || !reflect.DeepEqual(got[0].Points, [][2]float64{{1500, 1}}) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err = p.instant(t.Context(), "broken", to); err == nil || !strings.Contains(err.Error(), "parse error") {
		t.Errorf("error %v", err)
	}
}

func TestEvents(t *testing.T) {
	// Two points in a row are one event; one apart, and zeros between, are others.
	p := oracle(t, func(string, int) []string { return []string{"1", "1", "", "1", "0", "2"} })
	at := func(n int64) int64 { return from.UnixMilli() + n*15_000 }
	a := grafana.Annotation{Name: "n", Enable: true, IconColor: "red", Expr: "a", Step: "15s", TitleFormat: "{{topic}}"}
	got, err := p.events(t.Context(), a, from, to) // of 6 minutes a hundredth is less than 15 s
	want := []event{{"n", "red", "orders", at(0), at(1)}, {"n", "red", "orders", at(3), at(3)}, {"n", "red", "orders", at(5), at(5)}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	a.Enable = false
	if got, err := p.events(t.Context(), a, from, to); err != nil || len(got) != 0 {
		t.Errorf("of one that is switched off: %+v, %v", got, err)
	}
}

func scene(t *testing.T) settings {
	t.Helper()
	sources, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	kept := filepath.Join(sources, "build", "board-test") // the chart library stays for the next time
	return settings{sources: sources, dashboard: filepath.Join(sources, "packaging/grafana/kconsume.json"), picture: filepath.Join(t.TempDir(), "board.png"), kept: kept}
}

// All that the dashboard says can be drawn, and is.
func TestDraw(t *testing.T) {
	p := oracle(t, func(_ string, step int) (all []string) {
		for i := range 360/max(step, 1) + 1 {
			all = append(all, strconv.Itoa(i%7))
		}
		return all
	})
	s := scene(t)
	if err := s.draw(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(s.picture)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := png.Decode(bytes.NewReader(b))
	if err != nil || whole.Bounds().Dx() != width || whole.Bounds().Dy() < 2000 {
		t.Fatalf("a picture of %v: %v", whole.Bounds(), err)
	}
	s.rows = 12
	if err := s.draw(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if b, err = os.ReadFile(s.picture); err != nil {
		t.Fatal(err)
	}
	if part, err := png.Decode(bytes.NewReader(b)); err != nil || part.Bounds().Dy() > 600 {
		t.Errorf("a picture of 12 rows: %v: %v", part.Bounds(), err)
	}
}

// What cannot be drawn is told of, and no picture is made.
func TestDrawRefuses(t *testing.T) {
	s := scene(t)
	text, err := os.ReadFile(s.dashboard)
	if err != nil {
		t.Fatal(err)
	}
	p := oracle(t, func(string, int) []string { return []string{"1", "2"} })
	for i, c := range []struct{ old, new, want string }{
		{`"type": "heatmap"`, `"type": "piechart"`, "piechart"},
		{`"unit": "bytes"`, `"unit": "furlongs"`, "furlongs"},
		{`"scheme": "Oranges"`, `"scheme": "Greens"`, "Greens"},
		{`"drawStyle": "line"`, `"drawStyle": "spiral"`, "spiral"},
		{`"wideLayout": true`, `"sparkles": true`, "sparkles"},
		{`\"$job\"`, `\"$other\"`, "$other"},
	} {
		t.Run(c.want, func(t *testing.T) {
			changed := strings.Replace(string(text), c.old, c.new, 1)
			if changed == string(text) {
				t.Fatalf("the dashboard does not hold %s", c.old)
			}
			s.dashboard = filepath.Join(t.TempDir(), fmt.Sprintf("%d.json", i))
			if err := os.WriteFile(s.dashboard, []byte(changed), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := s.draw(t.Context(), p); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v", err)
			}
			if _, err := os.Stat(s.picture); err == nil {
				t.Error("there is a picture")
			}
		})
	}
}
