package daemon_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

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
	for line := range strings.Lines(springReader(t, bootstrap, topic+".dlq", "2")) {
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

// springReader runs testdata/spring until it has read as many records, and
// returns what it printed.
func springReader(t *testing.T, brokers, topic, records string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/spring")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "mvn", "-q", "-B", "-f", filepath.Join(dir, "pom.xml"), "compile", "dependency:copy-dependencies").CombinedOutput(); err != nil {
		t.Fatalf("build the Spring reader: %v: is Maven's repository reachable?\n%s", err, out)
	}
	reader := exec.CommandContext(ctx, "java", "-Dbrokers="+brokers, "-Dtopic="+topic, "-Drecords="+records,
		"-cp", filepath.Join(dir, "target", "classes")+":"+filepath.Join(dir, "target", "dependency", "*"), "reader.Reader")
	var stderr bytes.Buffer
	reader.Stderr = &stderr
	out, err := reader.Output()
	if err != nil {
		t.Fatalf("run the Spring reader: %v\n%s\n%s", err, out, stderr.Bytes())
	}
	return string(out)
}
