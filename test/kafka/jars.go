package kafka

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// Version is the Apache Kafka that the tests run.
const Version = "4.4.0"

//go:embed pom.xml log4j2.properties
var files embed.FS

// jars returns the folder of Kafka's jars, which it fills through Maven the
// first time. The folder appears by one rename, so it is whole or absent; a
// file lock keeps two test binaries from fetching at once.
func jars(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find cache folder: %w; set XDG_CACHE_HOME or HOME", err)
	}
	dir := filepath.Join(cache, "kconsume", "kafka-"+Version)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", fmt.Errorf("make cache folder: %w", err)
	}
	unlock, err := lock(dir + ".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(dir); err == nil { // another process was first
		return dir, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("look for Kafka's jars: %w", err)
	}
	part, err := os.MkdirTemp(filepath.Dir(dir), "part-")
	if err != nil {
		return "", fmt.Errorf("make folder for Kafka's jars: %w", err)
	}
	defer os.RemoveAll(part)
	if err := fetchJars(ctx, part); err != nil {
		return "", err
	}
	if err := os.Rename(filepath.Join(part, "libs"), dir); err != nil {
		return "", fmt.Errorf("put Kafka's jars in place: %w", err)
	}
	return dir, nil
}

// fetchJars copies the jars of pom.xml into dir/libs.
func fetchJars(ctx context.Context, dir string) error {
	if _, err := exec.LookPath("mvn"); err != nil {
		return fmt.Errorf("fetch Kafka %s: %w; run make check, which installs Maven", Version, err)
	}
	if err := os.CopyFS(dir, files); err != nil {
		return fmt.Errorf("write pom.xml: %w", err)
	}
	cmd := exec.CommandContext(ctx, "mvn", "-q", "-B", "-f", filepath.Join(dir, "pom.xml"),
		"dependency:copy-dependencies", "-DincludeScope=runtime",
		"-Dkafka.version="+Version, "-DoutputDirectory="+filepath.Join(dir, "libs"))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("fetch Kafka %s with Maven: %w; is its repository reachable?\n%s", Version, err, tail(out.Bytes()))
	}
	return nil
}

// lock takes an exclusive lock on path, which the kernel drops with the process.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { f.Close() }, nil
}

// tail returns the last few KiB of output, what a person needs of a log.
func tail(b []byte) []byte {
	const keep = 4 << 10
	return b[max(0, len(b)-keep):]
}
