package daemon_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kconsume/kconsume/test/kcat"
)

// A module of its own embeds the engine twice in one process: each has its own
// registry, works, stops, and leaves no goroutine; and it links neither the
// embedded broker nor the command line library.
func TestEmbeddedTwice(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	main, err := os.ReadFile("testdata/shop/main.go")
	if err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	const self = "github.com/kconsume/kconsume"
	mod = bytes.Replace(mod, []byte("module "+self), []byte("module example.com/shop"), 1)
	mod = append(mod, "\nrequire "+self+" v0.0.0\nreplace "+self+" => "+root+"\n"...)
	for name, content := range map[string][]byte{"main.go": main, "go.mod": mod, "go.sum": sum} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	goRun := func(args ...string) string {
		cmd := exec.Command("go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod -buildvcs=false")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("go %v: %v\n%s", args, err, out)
		}
		return string(out)
	}

	deps := goRun("list", "-deps", ".")
	for _, unwanted := range []string{"franz-go", "urfave"} {
		if strings.Contains(deps, unwanted) {
			t.Errorf("a program that embeds the engine links %s", unwanted)
		}
	}
	t.Logf("it links %d packages", strings.Count(deps, "\n"))

	for _, topic := range []string{"shop-a", "shop-b"} {
		createTopic(t, topic, 2)
		var sent []kcat.Record
		for i := range 10 {
			value := "good"
			if i == 4 {
				value = "bad"
			}
			sent = append(sent, kcat.Record{Key: []byte{byte('a' + i)}, Value: []byte(value)})
		}
		kcat.Produce(t, broker.Cluster(t).Bootstrap(), topic, 0, sent)
	}
	got := goRun("run", ".", broker.Cluster(t).Bootstrap(), "shop-a", "shop-b")
	want := `shop-a: 10 first deliveries, 1 retries, 1 in the DLQ
shop-b: 10 first deliveries, 1 retries, 1 in the DLQ
goroutines: 1
`
	if got != want {
		t.Errorf("it printed\n%swant\n%s", got, want)
	}
	t.Log(got)
}
