// Package container_test builds the container image, unpacks it, and runs it
// the way Kubernetes would: as user 65532 without rights, on a root file system
// that cannot be written to.
package container_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// built is the folder with the layout, its tar file and two handlers; set
// before the tests run.
var built string

func TestMain(m *testing.M) { os.Exit(withImage(m)) }

func withImage(m *testing.M) int {
	dir, err := os.MkdirTemp("", "kconsume-image-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	built = dir
	for _, args := range [][]string{
		{"build", "-trimpath", "-o", dir + "/kconsume", "./cmd/kconsume"},
		{"build", "-trimpath", "-o", dir + "/kconsume-handler-orders", "./plugins/examples/orders"},
		{"build", "-trimpath", "-o", dir + "/kconsume-handler-probe", "./test/probe"},
		{"-C", "tools", "build", "-o", dir + "/ociimage", "./ociimage"},
	} {
		cmd := exec.Command("go", args...)
		cmd.Dir, cmd.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "go %v: %v\n%s", args, err, out)
			return 1
		}
	}
	if _, err := write(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// write writes the image into a folder and returns its digest.
func write(dir string) (string, error) {
	out, err := exec.Command(built+"/ociimage", "-version", "v9.8.7", "-commit", "abc", "-time", "1700000000",
		"-license", "../../LICENSE", "-layout", dir+"/oci", "-tar", dir+"/oci.tar", runtime.GOARCH+"="+built+"/kconsume").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("ociimage: %w\n%s", err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

func opened(t *testing.T) *image {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away and make mounts")
	}
	return openImage(t, built+"/oci", runtime.GOARCH)
}

func TestTwoBuildsAreOne(t *testing.T) {
	other := t.TempDir()
	again, err := write(other)
	if err != nil {
		t.Fatal(err)
	}
	first := parse[manifest](t, read(t, built+"/oci/index.json")).Manifests[0].Digest
	if again != first {
		t.Errorf("%s, and before %s", again, first)
	}
	if !bytes.Equal(read(t, other+"/oci.tar"), read(t, built+"/oci.tar")) {
		t.Error("two tar files")
	}
}

func TestTarFileIsTheLayout(t *testing.T) {
	var names []string
	r := tar.NewReader(bytes.NewReader(read(t, built+"/oci.tar")))
	for h, err := r.Next(); err != io.EOF; h, err = r.Next() {
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(content, read(t, filepath.Join(built, "oci", h.Name))) {
			t.Errorf("%s differs", h.Name)
		}
		names = append(names, h.Name)
	}
	if !slices.IsSorted(names) || !slices.Contains(names, "oci-layout") || !slices.Contains(names, "index.json") {
		t.Errorf("files %v", names)
	}
}

func TestConfig(t *testing.T) {
	i := opened(t)
	c := i.config.Config
	if c.User != "65532:65532" || strings.Join(c.Entrypoint, " ")+" "+strings.Join(c.Cmd, " ") != "/usr/bin/kconsume run" {
		t.Errorf("user %q, entrypoint %q, cmd %q", c.User, c.Entrypoint, c.Cmd)
	}
	if i.config.Created != "2023-11-14T22:13:20Z" {
		t.Errorf("created %s", i.config.Created)
	}
	for name, want := range map[string]string{
		"version": "v9.8.7", "revision": "abc", "licenses": "Apache-2.0", "title": "kconsume", "created": "2023-11-14T22:13:20Z",
	} {
		name = "org.opencontainers.image." + name
		if c.Labels[name] != want || i.index.Annotations[name] != want {
			t.Errorf("%s: label %q, annotation %q, want %q", name, c.Labels[name], i.index.Annotations[name], want)
		}
	}
}

// Nobody but root can write to what is trusted, and all of it is of one time.
func TestFiles(t *testing.T) {
	i := opened(t)
	own := map[string]int64{"run/kconsume/": 0o750, "var/lib/kconsume/": 0o700}
	for _, d := range i.manifest.Layers {
		for h, content := range i.files(t, d) {
			mode, user := h.Mode, 0
			if m, ok := own[h.Name]; ok {
				user = 65532
				if mode != m {
					t.Errorf("%s has the mode %o", h.Name, mode)
				}
				delete(own, h.Name)
			}
			if h.Uid != user || h.Gid != user {
				t.Errorf("%s belongs to %d:%d", h.Name, h.Uid, h.Gid)
			}
			if mode&0o6022 != 0 && h.Name != "tmp/" {
				t.Errorf("%s has the mode %o", h.Name, mode)
			}
			if h.ModTime.Unix() != 1700000000 {
				t.Errorf("%s is of %v", h.Name, h.ModTime)
			}
			if h.Name == "etc/ssl/certs/ca-certificates.crt" {
				authorities(t, content)
			}
		}
	}
	if len(own) > 0 {
		t.Errorf("missing: %v", own)
	}
}

func authorities(t *testing.T, b []byte) {
	t.Helper()
	n := 0
	for block, rest := pem.Decode(b); block != nil; block, rest = pem.Decode(rest) {
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil || !c.IsCA {
			t.Errorf("certificate %d: %v", n, err)
		}
		n++
	}
	if n < 50 {
		t.Errorf("%d authorities", n)
	}
}

// install does what the Dockerfile of an image with a handler does.
func install(t *testing.T, root, name string) string {
	t.Helper()
	path := filepath.Join(root, "usr/local/libexec/kconsume/handlers/kconsume-handler-"+name)
	if err := os.WriteFile(path, read(t, built+"/kconsume-handler-"+name), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// The main job: a handler that is found by its name handles records.
func TestDev(t *testing.T) {
	i := opened(t)
	root := i.rootFS(t)
	install(t, root, "orders")
	c := i.run(t, root, volume(t), "dev", "--handler", "orders")
	for _, line := range []string{"main     1st  received, done in", "retry.2s 2nd  done in", "DLQ: permanent"} {
		t.Log(c.await(line))
	}
	status := c.status()
	for name, want := range map[string]string{
		"Uid": "65532 65532 65532 65532", "Gid": "65532 65532 65532 65532", "NoNewPrivs": "1",
		"CapEff": "0000000000000000", "CapPrm": "0000000000000000",
	} {
		if status[name] != want {
			t.Errorf("%s is %s, want %s", name, status[name], want)
		}
	}
	if ids := strings.Fields(status["NSpid"]); ids[len(ids)-1] != "1" {
		t.Errorf("it is not its container's first process: %v", ids)
	}
	if code := c.stop(); code != 0 {
		t.Errorf("exit code %d\n%s", code, c.text())
	}
}

// The image's own command, with the settings in a file: endpoints for the
// kubelet, status from inside, a journal on the volume, a clean end.
func TestRun(t *testing.T) {
	i := opened(t)
	root := i.rootFS(t)
	install(t, root, "probe")
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "letters"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	produce(t, broker.ListenAddrs(), "letters", 10)
	settings := fmt.Sprintf("brokers: %s\ngroup: g\ntopic: letters\nhandler: probe\nhandler-env: [PROBE_LOG=/tmp/probe.log]\nmetrics: \":0\"\nstate-dir: /var/lib/kconsume\n", broker.ListenAddrs()[0])
	if err := os.WriteFile(root+"/etc/kconsume/kconsume.yaml", []byte(settings), 0o644); err != nil {
		t.Fatal(err)
	}
	state := volume(t)
	c := i.run(t, root, state, append(i.config.Config.Cmd, "--config", "/etc/kconsume/kconsume.yaml")...)
	address := regexp.MustCompile(`metrics=(\S+)`).FindStringSubmatch(c.await("msg=started"))[1]
	port := address[strings.LastIndex(address, ":"):]
	if strings.HasPrefix(address, "127.") {
		t.Errorf("metrics at %s: nobody outside of the pod gets there", address)
	}
	if code, _ := get(t, "127.0.0.1"+port+"/livez"); code != http.StatusOK {
		t.Errorf("livez: %d", code)
	}
	settled := regexp.MustCompile(`kconsume_messages_total\{outcome="ack",stage="main",topic="letters"\} 10\n`)
	until(t, "ten records are handled", func() (string, bool) {
		_, text := get(t, "127.0.0.1"+port+"/metrics")
		return text, settled.MatchString(text)
	})
	if code, text := get(t, "127.0.0.1"+port+"/readyz"); code != http.StatusOK {
		t.Errorf("readyz: %d %s", code, text)
	}
	if out := c.exec("/usr/bin/kconsume", "status"); !strings.Contains(out, "letters") {
		t.Errorf("status: %s", out)
	}
	if code := c.stop(); code != 0 {
		t.Errorf("exit code %d\n%s", code, c.text())
	}
	journals, err := filepath.Glob(state + "/*.journal")
	if err != nil || len(journals) != 1 {
		t.Fatalf("journals %v, %v", journals, err)
	}
	if text := string(read(t, journals[0])); !strings.HasSuffix(text, "clean\n") {
		t.Errorf("the journal ends with %q", text)
	}
}

// A secret as the kubelet projects it, of the pod's group and behind links, is
// read by the user of the image.
func TestProjectedSecret(t *testing.T) {
	i := opened(t)
	root := i.rootFS(t)
	install(t, root, "probe")
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "letters"), kfake.EnableSASL(), kfake.Superuser("PLAIN", "billing", "s3cret"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	dir := root + "/etc/kconsume"
	version := dir + "/..2026_11_30"
	for _, err := range []error{
		os.Mkdir(version, 0o755),
		os.WriteFile(version+"/password", []byte("s3cret"), 0o440), os.Chown(version+"/password", 0, 65532),
		os.Symlink("..2026_11_30", dir+"/..data"), os.Symlink("..data/password", dir+"/password"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	c := i.run(t, root, volume(t), "run", "--brokers", broker.ListenAddrs()[0], "--group", "g", "--topic", "letters", "--handler", "probe",
		"--handler-env", "PROBE_LOG=/tmp/probe.log", "--metrics", "127.0.0.1:0",
		"--sasl-mechanism", "plain", "--sasl-username", "billing", "--sasl-password-file", "/etc/kconsume/password")
	address := regexp.MustCompile(`metrics=(\S+)`).FindStringSubmatch(c.await("msg=started"))[1]
	until(t, "it is in the group", func() (string, bool) {
		code, text := get(t, address+"/readyz")
		return text + c.text(), code == http.StatusOK
	})
	if strings.Contains(c.text(), "s3cret") {
		t.Error("the password is in the log")
	}
	if code := c.stop(); code != 0 {
		t.Errorf("exit code %d\n%s", code, c.text())
	}
}

// What could put another handler in the place of the trusted one is refused.
func TestUntrustedHandlers(t *testing.T) {
	i := opened(t)
	for name, c := range map[string]struct {
		spoil func(handler string) error
		says  string
	}{
		"the file is the user's group's to write": {func(h string) error { return os.Chmod(h, 0o775) }, "can be written to by others"},
		"the folder is everybody's":               {func(h string) error { return os.Chmod(filepath.Dir(h), 0o777) }, "can be written to by others"},
		"the file is somebody else's":             {func(h string) error { return os.Chown(h, 1000, 1000) }, "belongs to user 1000"},
	} {
		t.Run(name, func(t *testing.T) {
			root := i.rootFS(t)
			if err := c.spoil(install(t, root, "orders")); err != nil {
				t.Fatal(err)
			}
			box := i.run(t, root, volume(t), "run", "--brokers", "127.0.0.1:1", "--group", "g", "--topic", "t", "--handler", "orders")
			if code := box.code(); code != 78 || !strings.Contains(box.text(), c.says) {
				t.Errorf("exit code %d, want 78, and %q in\n%s", code, c.says, box.text())
			}
		})
	}
}

// A state folder that was named and cannot be made ends the start.
func TestRootIsReadOnly(t *testing.T) {
	i := opened(t)
	root := i.rootFS(t)
	install(t, root, "orders")
	c := i.run(t, root, volume(t), "run", "--brokers", "127.0.0.1:1", "--group", "g", "--topic", "t", "--handler", "orders", "--state-dir", "/var/lib/other")
	if code := c.code(); code != 78 || !strings.Contains(c.text(), "read-only file system") {
		t.Errorf("exit code %d, want 78\n%s", code, c.text())
	}
}

func produce(t *testing.T, brokers []string, topic string, n int) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for range n {
		if err := client.ProduceSync(context.Background(), &kgo.Record{Topic: topic, Value: []byte("ok")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

// until asks again until something is so. What it was last is told if that
// takes too long.
func until(t *testing.T, what string, ask func() (string, bool)) {
	t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		last, ok := ask()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not yet: %s: %s", what, last)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	r, err := http.Get("http://" + url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b)
}
