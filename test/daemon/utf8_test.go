package daemon_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kconsume/kconsume/plugin"
	"github.com/kconsume/kconsume/test/kcat"
)

// exposition is a line of /metrics.
var exposition = regexp.MustCompile(`^(# (HELP|TYPE) [a-zA-Z_:][a-zA-Z0-9_:]* .+|[a-zA-Z_:][a-zA-Z0-9_:]*(\{([a-z_]+="([^"\\]|\\.)*",?)*\})? [0-9eE+.Na-]+|[a-z_]+_bucket\{.*le="\+Inf"\} [0-9]+)$`)

func unhex(s string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		panic(err)
	}
	return b
}

// Keys, header names, header values and a handler's own texts that are not UTF-8
// pass through a real handler process: nothing is changed, nothing is repeated,
// the process lives, and what people and machines read of it is text.
func TestBytesThatAreNoText(t *testing.T) {
	topic, group := "notext", "notext-group"
	createTopic(t, topic, 1)
	dir := t.TempDir()
	handler := filepath.Join(dir, "kconsume-handler-hex")
	if out, err := exec.Command("go", "build", "-o", handler, "./testdata/hex").CombinedOutput(); err != nil {
		t.Fatalf("build the handler: %v\n%s", err, out)
	}
	sent := []*kgo.Record{
		{Value: []byte("ok 1")},
		{Value: []byte("name"), Headers: []kgo.RecordHeader{{Key: string(unhex("78 FF FE")), Value: []byte("v")}}},
		{Value: []byte("ok 2"), Key: []byte{}},
		{Value: []byte("empty name"), Headers: []kgo.RecordHeader{{Key: "", Value: []byte{}}, {Key: "", Value: nil}}},
		{Value: []byte("ok 3")},
		{Value: []byte("control"), Headers: []kgo.RecordHeader{{Key: "h", Value: unhex("02")}}},
		{Value: unhex("00 FF")},
		{Value: []byte("ok 4")},
		{Key: unhex("FF FE"), Value: []byte("key")},
		{Key: unhex("FF FE"), Value: []byte("bad error"), Headers: []kgo.RecordHeader{{Key: string(unhex("78 FF FE")), Value: unhex("02")}, {Key: "", Value: unhex("00 FF")}}},
		{Value: []byte("bad line")},
		{Value: []byte("ok 5")},
	}
	var want []string
	for _, r := range sent {
		r.Topic = topic
		line := "1 " + show(r.Key) + " " + show(r.Value)
		for _, h := range r.Headers {
			line += " " + show([]byte(h.Key)) + "=" + show(h.Value)
		}
		want = append(want, line)
	}
	put(t, independent(t), sent...)
	log := filepath.Join(dir, "hex.log")
	d := launch(t, topic, group, "--handler", handler, "--handler-env", "HEX_LOG="+log, "--log-format", "json", "--order", "partition", "--retry", "1s")
	until(t, "the lag is zero", func() bool { return lag(t, group, []string{topic}, 1) == 0 })

	got, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Split(strings.TrimSpace(string(got)), "\n"); !slices.Equal(lines, want) {
		t.Errorf("the handler was given\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
	res, err := http.Get("http://" + d.metrics + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if !utf8.Valid(body) {
		t.Error("/metrics is not UTF-8")
	}
	for line := range strings.Lines(string(body)) {
		if !exposition.MatchString(strings.TrimSuffix(line, "\n")) {
			t.Errorf("/metrics has the line %q", line)
		}
	}
	d.stop()
	d.mu.Lock()
	logged := bytes.Clone(d.log.Bytes())
	d.mu.Unlock()
	for line := range bytes.Lines(logged) {
		if !json.Valid(line) || !utf8.Valid(line) || bytes.ContainsAny(bytes.TrimSuffix(line, []byte("\n")), "\x1b\x00") {
			t.Errorf("the log has the line %q", line)
		}
	}
	if n := bytes.Count(logged, []byte("a line with ")); n != 1 {
		t.Errorf("the handler's line is in %d lines of the log, want 1", n)
	}
	for _, end := range []string{"crash", "restart"} {
		if bytes.Contains(bytes.ToLower(logged), []byte(end)) {
			t.Errorf("the log tells of a %s", end)
		}
	}

	dead := kcat.Consume(t, broker.Cluster(t).Bootstrap(), topic+".dlq")
	if len(dead) != 1 {
		t.Fatalf("%d dead letters, want 1", len(dead))
	}
	own := sent[9]
	if !same(dead[0].Key, own.Key) || !same(dead[0].Value, own.Value) || len(dead[0].Headers) < len(own.Headers) {
		t.Errorf("the dead letter is %+v", dead[0])
	}
	for i, h := range own.Headers {
		if g := dead[0].Headers[i]; g.Key != h.Key || !same(g.Value, h.Value) {
			t.Errorf("its header %d is %q=%q, want %q=%q", i, g.Key, g.Value, h.Key, h.Value)
		}
	}
	for name, want := range map[string]string{"X-Error-Message": "bad \ufffd", "X-Error-Code": "\ufffd(", "X-Handler": "hex@1\ufffd"} {
		h := header(dead[0], name)
		if !utf8.ValidString(h) || !strings.HasPrefix(h, want) {
			t.Errorf("%s is %q, want text that begins with %q", name, h, want)
		}
	}
	if i := slices.IndexFunc(dead[0].Headers, func(h plugin.Header) bool { return h.Key == "X-Error-Class" && string(h.Value) == "permanent" }); i < 0 {
		t.Error("its class is not permanent")
	}
}

// show is what the handler writes of bytes.
func show(b []byte) string {
	if b == nil {
		return "-"
	}
	return fmt.Sprintf(`"%x"`, b)
}
