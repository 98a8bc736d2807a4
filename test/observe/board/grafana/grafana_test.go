package grafana

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestExpand(t *testing.T) {
	for _, c := range []struct {
		v          Variables
		expr, want string
	}{
		{Variables{".+", 15 * time.Second, 15 * time.Second}, `rate(a{job=~"$job"}[$__rate_interval])`, `rate(a{job=~".+"}[60s])`},
		{Variables{".+", time.Minute, 15 * time.Second}, `rate(a[$__rate_interval])`, `rate(a[75s])`},
		{Variables{".+", time.Minute, 15 * time.Second}, `increase(a[$__interval])`, `increase(a[60s])`},
		{Variables{"a|b", time.Second, time.Second}, `{job=~"$job"}`, `{job=~"a|b"}`},
		{Variables{}, `a`, `a`},
		{Variables{}, `rate(a[$__range])`, ""},
	} {
		if got, err := c.v.Expand(c.expr); got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%s with %+v: %s, %v", c.expr, c.v, got, err)
		}
	}
}

func TestStep(t *testing.T) {
	for _, c := range []struct {
		window      time.Duration
		pixels      int
		least, want time.Duration
	}{
		{6 * time.Minute, 1600, 5 * time.Second, 5 * time.Second},
		{3 * time.Hour, 500, 15 * time.Second, 30 * time.Second}, // 21.6 s
		{time.Hour, 3600, time.Second, time.Second},
		{10 * time.Minute, 0, time.Second, 10 * time.Minute},
		{1000 * time.Hour, 10, time.Second, time.Hour}, // the longest there is
	} {
		if got := Step(c.window, c.pixels, c.least); got != c.want {
			t.Errorf("%v on %d pixels, at least %v: %v, want %v", c.window, c.pixels, c.least, got, c.want)
		}
	}
}

func TestLegend(t *testing.T) {
	labels := map[string]string{"topic": "orders", "stage": "main"}
	for format, want := range map[string]string{
		"{{topic}} {{ stage }}": "orders main", "{{none}}!": "!", "as it is": "as it is", "{{open": "{{open", "": "",
	} {
		if got := Legend(format, labels); got != want {
			t.Errorf("%q: %q, want %q", format, got, want)
		}
	}
}

// The panels of a row that is folded are asked too.
func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "board.json")
	text := `{"panels": [{"id": 1, "type": "row", "panels": [{"id": 2, "targets": [{"refId": "A", "expr": "a", "legendFormat": "{{b}}"}]}]}, {"id": 3}],
		"annotations": {"list": [{"name": "n", "expr": "c"}]}}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Panels) != 3 || d.Panels[1].ID != 2 || d.Panels[1].Targets[0].LegendFormat != "{{b}}" || d.Annotations.List[0].Expr != "c" || string(d.Text) != text {
		t.Errorf("%+v", d)
	}
	if _, err := Read(path + ".not"); err == nil {
		t.Error("no error of a file that is not there")
	}
}
