package daemon_test

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kconsume/kconsume/admin"
	"github.com/kconsume/kconsume/admin/dlq"
	"github.com/kconsume/kconsume/plugin"
	"github.com/kconsume/kconsume/test/kcat"
)

// A Spring application that reads dead letters finds in ours what its own
// recoverer writes, and a reader of share groups' what a broker writes.
func TestSpringReadsDeadLetters(t *testing.T) {
	topic, group := "spring", "spring-group"
	createTopic(t, topic, 2)
	bootstrap := broker.Cluster(t).Bootstrap()
	kcat.Produce(t, bootstrap, topic, 1, []kcat.Record{{Key: []byte("k"), Value: []byte("perm")}, {Key: []byte("k"), Value: []byte("fail 9")}})
	d := start(t, topic, group, filepath.Join(t.TempDir(), "probe.log"), "--retry", "200ms", "--headers", "kconsume,spring,kip1191")
	until(t, "both are in the DLQ", func() bool { return lag(t, group, []string{topic + ".dlq"}, 2) == 2 })
	d.stop()

	var got []string
	for line := range strings.Lines(spring(t, "Reader", "brokers="+bootstrap, "topic="+topic+".dlq", "records=2")) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "dead|"); ok {
			got = append(got, rest)
		}
	}
	slices.Sort(got)
	if len(got) != 2 {
		t.Fatalf("Spring read %q", got)
	}
	for i, want := range []struct{ begins, ends string }{
		{"fail 9|spring|1|1|true|spring-group|kconsume.transient|", "|spring|1|2"},
		{"perm|spring|1|0|true|spring-group|kconsume.permanent|", "|spring|0|1"},
	} {
		t.Log(got[i])
		if !strings.HasPrefix(got[i], want.begins) || !strings.HasSuffix(got[i], want.ends) {
			t.Errorf("Spring read %q, want %q … %q", got[i], want.begins, want.ends)
		}
	}
}

// What a Spring application dead-lettered is seen here when its group is taken
// over, with what Spring wrote about it, and is replayed.
func TestTakesOverFromSpring(t *testing.T) {
	topic, group := "boot", "boot-group"
	createTopic(t, topic, 2)
	createTopic(t, topic+"-dlt", 2)
	bootstrap := broker.Cluster(t).Bootstrap()
	own := []plugin.Header{{Key: "trace", Value: []byte("7")}}
	kcat.Produce(t, bootstrap, topic, 1, []kcat.Record{{Key: []byte("k1"), Value: []byte("ok"), Headers: own}, {Key: []byte("k2"), Value: []byte("ok")}})
	spring(t, "Writer", "brokers="+bootstrap, "topic="+topic, "records=2", "group="+group)

	log, socket := filepath.Join(t.TempDir(), "probe.log"), filepath.Join(t.TempDir(), "d.sock")
	d := start(t, topic, group, log, "--retry", "200ms", "--dlq-topic", "{topic}-dlt", "--admin", "unix:"+socket)
	client := admin.NewClient(socket)
	var page dlq.MessagePage
	two := func(status dlq.Status) bool {
		call := admin.Call{Path: "/v1/dlq/" + topic + "-dlt/messages", Query: url.Values{"status": {string(status)}}}
		return client.Do(t.Context(), call, &page) == nil && len(page.Messages) == 2
	}
	until(t, "both are seen", func() bool { return two(dlq.StatusNew) })
	for _, m := range page.Messages {
		t.Logf("%d:%d: %s: %s; from %s/%d@%d", m.Position.Partition, m.Position.Offset, m.Class, m.Error, m.Origin.Topic, m.Origin.Partition, m.Origin.Offset)
		if m.Class != "java.lang.IllegalStateException" || !strings.Contains(m.Error, "is not known") || m.Origin.Topic != topic || m.Origin.Partition != 1 ||
			m.Origin.Offset != m.Position.Offset || m.Group != group {
			t.Errorf("%+v", m)
		}
	}
	if n := len(deliveries(t, log)); n != 0 {
		t.Errorf("%d records that Spring had committed were handled again", n)
	}
	var replayed struct{ Replayed int }
	err := client.Do(t.Context(), admin.Call{Method: http.MethodPost, Path: "/v1/dlq/" + topic + "-dlt/replay"}, &replayed)
	if err != nil || replayed.Replayed != 2 {
		t.Fatal(replayed, err)
	}
	until(t, "both are handled", func() bool { return two(dlq.StatusSucceeded) })
	d.stop()
	for _, r := range kcat.Consume(t, bootstrap, topic+".replay") {
		for _, h := range r.Headers {
			if strings.HasPrefix(h.Key, "kafka_dlt-") {
				t.Errorf("the copy has Spring's %s", h.Key)
			}
		}
		if has := slices.ContainsFunc(r.Headers, func(h plugin.Header) bool { return h.Key == "trace" }); has != (string(r.Key) == "k1") {
			t.Errorf("the copy of %s has the headers %v", r.Key, r.Headers)
		}
	}
}

// spring builds testdata/spring, runs one of its programs with these properties,
// and returns what it printed.
func spring(t *testing.T, program string, properties ...string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/spring")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "mvn", "-q", "-B", "-f", filepath.Join(dir, "pom.xml"), "compile", "dependency:copy-dependencies").CombinedOutput(); err != nil {
		t.Fatalf("build the Spring applications: %v: is Maven's repository reachable?\n%s", err, out)
	}
	var args []string
	for _, p := range properties {
		args = append(args, "-D"+p)
	}
	args = append(args, "-cp", filepath.Join(dir, "target", "classes")+":"+filepath.Join(dir, "target", "dependency", "*"), "reader."+program)
	java := exec.CommandContext(ctx, "java", args...)
	var stderr bytes.Buffer
	java.Stderr = &stderr
	out, err := java.Output()
	if err != nil {
		t.Fatalf("run Spring's %s: %v\n%s\n%s", program, err, out, stderr.Bytes())
	}
	return string(out)
}
