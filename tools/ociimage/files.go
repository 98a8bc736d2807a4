package main

import (
	"bytes"
	"debug/elf"
	"encoding/pem"
	"fmt"
	"os"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

const (
	user     = 65532 // runs kconsume; no other account has this id on a usual host
	stateDir = "/var/lib/kconsume"
)

// file is an entry of a layer: a folder where content is nil. It is root's
// unless own says that it is the user's.
type file struct {
	name    string
	mode    int64 // permissions, with the sticky bit
	content []byte
	own     bool
}

// baseFiles are the image's files but for the binary. Whatever kconsume trusts,
// handlers first of all, belongs to root and is nobody else's to write to.
func (p product) baseFiles() []file {
	dir := func(name string) file { return file{name: name, mode: 0o755} }
	text := func(name, content string) file { return file{name: name, mode: 0o644, content: []byte(content)} }
	return []file{
		dir("etc"),
		text("etc/passwd", fmt.Sprintf("root:x:0:0:root:/:/sbin/nologin\nkconsume:x:%d:%d:kconsume:%s:/sbin/nologin\n", user, user, stateDir)),
		text("etc/group", fmt.Sprintf("root:x:0:\nkconsume:x:%d:\n", user)),
		text("etc/nsswitch.conf", "hosts: files dns\n"), // without it /etc/hosts comes second
		dir("etc/kconsume"), dir("etc/ssl"), dir("etc/ssl/certs"),
		text("etc/ssl/certs/ca-certificates.crt", string(authorities())),
		dir("run"),
		{name: "run/kconsume", mode: 0o750, own: true},
		{name: "tmp", mode: 0o1777},
		dir("usr"), dir("usr/bin"),
		dir("usr/libexec"), dir("usr/libexec/kconsume"), dir("usr/libexec/kconsume/handlers"),
		dir("usr/local"), dir("usr/local/bin"),
		dir("usr/local/libexec"), dir("usr/local/libexec/kconsume"), dir("usr/local/libexec/kconsume/handlers"),
		dir("usr/share"), dir("usr/share/doc"), dir("usr/share/doc/kconsume"),
		text("usr/share/doc/kconsume/LICENSE", string(p.license)),
		dir("var"), dir("var/lib"),
		{name: stateDir[1:], mode: 0o700, own: true},
	}
}

// authorities are Mozilla's, as the Go project publishes them: a pinned version,
// not whatever the build machine has. Those on their way out, trusted for older
// certificates only, are left out: a PEM file cannot say so.
func authorities() []byte {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			// Writing to a bytes.Buffer never fails, and the block has no headers.
			_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})
		}
	}
	return out.Bytes()
}

// executable is kconsume for one architecture, in Go's spelling.
type executable struct {
	arch    string
	content []byte
}

// readBinary takes only what runs in an image that has nothing else in it.
func readBinary(arch, path string) (executable, error) {
	machines := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}
	content, err := os.ReadFile(path)
	if err != nil {
		return executable{}, fmt.Errorf("read the binary for %s: %w", arch, err)
	}
	f, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		return executable{}, fmt.Errorf("read the binary for %s: %s: %w", arch, path, err)
	}
	want, known := machines[arch]
	if !known || f.Machine != want {
		return executable{}, fmt.Errorf("binary for %s: %s is for %v", arch, path, f.Machine)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return executable{}, fmt.Errorf("binary for %s: %s is linked dynamically: build it with CGO_ENABLED=0", arch, path)
		}
	}
	return executable{arch, content}, nil
}
