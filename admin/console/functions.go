package console

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/kconsume/kconsume/admin/dlq"
)

// functions are what pages format with.
func functions() template.FuncMap {
	return template.FuncMap{
		"number": number, "ago": ago, "when": when, "iso": iso, "until": until, "span": span, "bytes": sizeText,
		"spark": spark, "plain": plain, "status": statusWord, "count": count, "verb": verb, "statuses": dlq.Statuses,
		"short": func(s string) string { s, _ = clip(s, 12); return s },
	}
}

// number groups digits by threes, with thin spaces.
func number(v any) string {
	s := fmt.Sprint(v)
	minus := strings.HasPrefix(s, "-")
	s = strings.TrimPrefix(s, "-")
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "\u202f" + s[i:]
	}
	if minus {
		return "−" + s
	}
	return s
}

// span is a duration in its two largest units.
func span(d time.Duration) string {
	switch d = max(0, d); {
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	case d < time.Minute:
		return strconv.FormatFloat(math.Round(d.Seconds()*10)/10, 'f', -1, 64) + " s"
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d d %d h", int(d.Hours())/24, int(d.Hours())%24)
}

func ago(now, t time.Time) string {
	if t.IsZero() {
		return "—"
	}
	return span(now.Sub(t)) + " ago"
}

func until(now, t time.Time) string {
	if t.IsZero() {
		return "—"
	}
	if d := t.Sub(now); d > 0 {
		return "in " + span(d)
	}
	return "now"
}

func when(t time.Time) string {
	if t.IsZero() {
		return "—"
	}
	return t.UTC().Format("2006-01-02 15:04:05") + " UTC"
}

func iso(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

func sizeText(n any) string {
	f, err := strconv.ParseFloat(fmt.Sprint(n), 64)
	if err != nil {
		return "—"
	}
	for _, u := range []string{"B", "KiB", "MiB"} {
		if f < 1024 {
			return strconv.FormatFloat(math.Round(f*10)/10, 'f', -1, 64) + " " + u
		}
		f /= 1024
	}
	return strconv.FormatFloat(math.Round(f*10)/10, 'f', -1, 64) + " GiB"
}

func count(m map[dlq.Status]int64, s string) int64 { return m[dlq.Status(s)] }

func statusWord(s dlq.Status) string { return strings.ReplaceAll(string(s), "_", " ") }

func verb(a dlq.Action) string {
	return map[dlq.Action]string{
		dlq.ActionReplay: "Send again", dlq.ActionResolve: "Resolve", dlq.ActionDiscard: "Discard", dlq.ActionRestore: "Restore",
	}[a]
}

// Bars of a sparkline, in its own units.
const (
	sparkBar, sparkGap, sparkHeight = 4, 1, 20
)

// spark draws counts of 24 hours as bars, the present hour last. peak is the
// height of the whole table, so that rows can be compared.
func spark(counts [24]int64, peak int64) template.HTML {
	var b strings.Builder
	var sum int64
	fmt.Fprintf(&b, `<svg class="spark" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="`, 24*(sparkBar+sparkGap), sparkHeight, 24*(sparkBar+sparkGap), sparkHeight)
	for _, n := range counts {
		sum += n
	}
	fmt.Fprintf(&b, `%d in the last 24 hours, %d in this one">`, sum, counts[23])
	for i, n := range counts {
		height := 1.0 // an empty hour is a line
		if n > 0 && peak > 0 {
			height = 2 + float64(sparkHeight-2)*math.Sqrt(float64(n)/float64(peak))
		}
		class := "bar"
		if n == 0 {
			class = "none"
		}
		fmt.Fprintf(&b, `<rect class="%s" x="%d" y="%.1f" width="%d" height="%.1f"></rect>`, class, i*(sparkBar+sparkGap), sparkHeight-height, sparkBar, height)
	}
	b.WriteString("</svg>")
	return template.HTML(b.String()) // numbers only
}
