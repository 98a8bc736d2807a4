package trial

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/kconsume/kconsume/engine"
	"github.com/kconsume/kconsume/plugin"
)

// some is one result of each kind.
func some() []Line {
	var lines []Line
	for i, steps := range [][]Step{
		{{1, "main", engine.Forecast{Fate: engine.FateDone, Emitted: []plugin.Record{
			{Topic: "out", Value: []byte{0xff}, Headers: []plugin.Header{{Key: "h", Value: nil}}}, {Topic: "out", Key: []byte{}, Value: []byte("<")}}}}},
		{{1, "main", engine.Forecast{Fate: engine.FateRetry, Topic: "t.retry.5s", Stage: "retry.5s", Delay: 1500 * time.Millisecond, Class: "transient", Code: "503", Message: "at 10:00"}}},
		{{1, "main", engine.Forecast{Fate: engine.FateRetry, Stage: "retry.5s", Class: "transient"}},
			{2, "retry.5s", engine.Forecast{Fate: engine.FateDead, Stage: "dlq", Class: "poison", Message: "text"}}},
		{{1, "main", engine.Forecast{Fate: engine.FateDropped, Message: "text"}}},
	} {
		lines = append(lines, LineOf(&Result{Record: i + 1, ID: []string{"a", "b", "c", "c"}[i], Steps: steps}))
	}
	return lines
}

// What is written is for ever: people keep such files beside their handlers.
func TestExpectation(t *testing.T) {
	b, err := Expectation(some())
	want := `{"id":"a","outcome":"done","emitted":[{"topic":"out","key":null,"value":{"base64":"/w=="},"headers":[{"key":"h","value":null}]},{"topic":"out","key":"","value":"<"}]}
{"id":"b","outcome":"retry","stage":"retry.5s","delay":"1500ms","class":"transient","code":"503"}
{"record":3,"outcome":"dlq","attempts":2,"via":["retry.5s"],"class":"poison"}
{"record":4,"outcome":"dropped"}
`
	if err != nil || string(b) != want {
		t.Errorf("%v, got\n%swant\n%s", err, b, want)
	}
	x, err := ReadExpected(bytes.NewReader(b), "e")
	if err != nil {
		t.Fatal(err)
	}
	if d := Compare(some(), x); len(d) != 0 {
		t.Errorf("%s", encode(d))
	}
}

func TestCompare(t *testing.T) {
	base := []string{`{"id":"a"}`, `{"id":"b"}`, `{"record":3}`, `{"record":4}`}
	with := func(i int, line string) string {
		all := append([]string(nil), base...)
		all[i] = line
		return strings.Join(all, "\n")
	}
	for _, c := range []struct {
		expected string
		want     []string // fields that differ, or what is missing
	}{
		{with(0, `{"id":"a","outcome":"done","stage":"","code":"","attempts":0,"via":[]}`), nil},
		{with(0, `{"id":"a","code":"x","attempts":2,"via":["retry.5s"]}`), []string{"attempts", "via", "code"}},
		{with(0, `{"id":"a","record":1}`), nil},
		{with(0, `{"record":1}`), nil},
		{with(0, `{"record":1,"id":"z"}`), []string{"id"}},
		{with(0, `{"id":"a","outcome":"dlq"}`), []string{"outcome"}},
		{with(1, `{"id":"b","outcome":"dlq","stage":"retry.30s","delay":"5s","class":"permanent","code":"500","message":"no"}`),
			[]string{"outcome", "stage", "delay", "class", "code", "message"}},
		{with(1, `{"id":"b","message":"at 10:00","code":"503"}`), nil},
		{with(1, `{"id":"b","code":""}`), []string{"code"}},
		{with(1, `{"id":"b","attempts":1}`), []string{"attempts"}},
		{with(2, `{"record":3,"via":["retry.5s"],"attempts":2}`), nil},
		{with(2, `{"record":3,"via":[]}`), []string{"via"}},
		{with(2, `{"record":3,"via":["retry.5s","retry.30s"]}`), []string{"via"}},
		{with(0, `{"id":"a","emitted":[]}`), []string{"emitted"}},
		{with(1, `{"id":"b","emitted":[]}`), nil},
		{with(0, `{"id":"a","emitted":[{"topic":"out"},{"topic":"out"}]}`), nil},
		{with(0, `{"id":"a","emitted":[{"topic":"out"}]}`), []string{"emitted"}},
		{with(0, `{"id":"a","emitted":[{"topic":"out","value":{"base64":"/w=="},"headers":[{"key":"h"}]},{"key":"","headers":[]}]}`), nil},
		{with(0, `{"id":"a","emitted":[{"key":""},{}]}`), []string{"emitted"}}, // null is not ""
		{with(0, `{"id":"a","emitted":[{"headers":[{"key":"h","value":""}]},{}]}`), []string{"emitted"}},
		{strings.Join(base[:3], "\n"), []string{"record 4 unexpected"}},
		{strings.Join(base, "\n") + "\n" + `{"id":"z"}`, []string{"z missing"}},
	} {
		x, err := ReadExpected(strings.NewReader(c.expected), "e")
		if err != nil {
			t.Fatalf("%s: %v", c.expected, err)
		}
		var got []string
		for _, d := range Compare(some(), x) {
			switch {
			case d.Field != "":
				got = append(got, d.Field)
			case d.Expected == nil:
				got = append(got, "record 4 unexpected")
			default:
				got = append(got, d.ID+" missing")
			}
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\ngot %q, want %q", c.expected, got, c.want)
		}
	}
}

func TestWrongExpectations(t *testing.T) {
	for line, want := range map[string]string{
		`{"id":"a","outcom":"done"}`:          `e:2: unknown name "outcom": use record, id, outcome,`,
		`{"outcome":"done"}`:                  "it names no record",
		`{"record":-1}`:                       "it names no record",
		`{"id":"a","outcome":"fine"}`:         `unknown outcome "fine": use one of done, dropped, retry, dlq, pause`,
		`{"id":"a","attempts":"2"}`:           "attempts must not be a string",
		`{"id":7}`:                            "id must not be a number",
		`{"id":"a"} {}`:                       "one on each line",
		`{"id":"a"`:                           "ends too early",
		`{"id":"a",}`:                         "invalid character",
		`{"id":"a","emitted":[{"value":7}]}`:  "bytes must be a string",
		`{"id":"a","emitted":[{"valu":"7"}]}`: `unknown name "valu"`,
		`{"id":"x"}`:                          "id x is expected in e:1 already",
		`null`:                                "it names no record",
	} {
		if _, err := ReadExpected(strings.NewReader("{\"id\":\"x\"}\n"+line), "e"); err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "e:2: ") {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
	if _, err := ReadExpected(io.MultiReader(strings.NewReader("\n"), failing{}), "e"); !errors.Is(err, errDisk) {
		t.Error(err)
	}
}

type failing struct{}

var errDisk = errors.New("disk")

func (failing) Read([]byte) (int, error) { return 0, errDisk }

func FuzzReadExpected(f *testing.F) {
	for _, s := range []string{`{"id":"a","outcome":"done"}`, `{"record":1,"emitted":[{"value":null}]}`, "null", "{"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := ReadExpected(bytes.NewReader(b), "e")
		if err == nil {
			Compare(some(), x)
		} else if !strings.HasPrefix(err.Error(), "e:") && !strings.Contains(err.Error(), "token too long") {
			t.Error(err)
		}
	})
}
