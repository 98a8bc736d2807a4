package main

import (
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// program is the least that is an ELF file with the segments given.
func program(machine elf.Machine, segments ...elf.ProgType) []byte {
	header := elf.Header64{
		Ident: [16]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT),
		Ehsize: 64, Phoff: 64, Phentsize: 56, Phnum: uint16(len(segments)),
	}
	b, err := binary.Append(nil, binary.LittleEndian, header)
	for _, s := range segments {
		if err == nil {
			b, err = binary.Append(b, binary.LittleEndian, elf.Prog64{Type: uint32(s)})
		}
	}
	if err != nil {
		panic(err) // the types are of fixed size
	}
	return b
}

func TestReadBinary(t *testing.T) {
	static := program(elf.EM_X86_64, elf.PT_LOAD)
	for _, c := range []struct {
		name, arch string
		content    []byte
		says       string // "" = taken
	}{
		{"static", "amd64", static, ""},
		{"static for arm64", "arm64", program(elf.EM_AARCH64, elf.PT_LOAD), ""},
		{"dynamic", "amd64", program(elf.EM_X86_64, elf.PT_INTERP, elf.PT_LOAD), "CGO_ENABLED=0"},
		{"of another architecture", "arm64", static, "EM_X86_64"},
		{"of an architecture that nobody knows", "pdp11", static, "EM_X86_64"},
		{"a script", "amd64", []byte("#!/bin/sh\nexec sleep 1\n"), "bad magic"},
	} {
		path := filepath.Join(t.TempDir(), "kconsume")
		if err := os.WriteFile(path, c.content, 0o755); err != nil {
			t.Fatal(err)
		}
		_, err := readBinary(c.arch, path)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", c.name, err, c.says)
		}
	}
}

// Both architectures share all but the binary, and the layout is sound.
func TestIndex(t *testing.T) {
	dir := t.TempDir()
	p := product{version: "v1.0.0", time: time.Unix(1, 0), license: []byte("free")}
	for arch, machine := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64} {
		p.binaries = append(p.binaries, executable{arch, program(machine)})
	}
	digest, err := p.write(filepath.Join(dir, "oci"), filepath.Join(dir, "oci.tar"))
	if err != nil {
		t.Fatal(err)
	}
	index, err := layout.ImageIndexFromPath(filepath.Join(dir, "oci"))
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	top, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if got := top.Manifests[0].Digest.String(); got != digest {
		t.Errorf("the layout's digest is %s, and %s was told", got, digest)
	}
	inner, err := index.ImageIndex(top.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	images, err := inner.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	layers := map[string]int{}
	for _, d := range images.Manifests {
		if d.ArtifactType != "" {
			t.Errorf("%s is called an artifact of the type %s", d.Digest, d.ArtifactType)
		}
		image, err := inner.Image(d.Digest)
		if err != nil {
			t.Fatal(err)
		}
		m, err := image.Manifest()
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range m.Layers {
			layers[l.Digest.String()]++
		}
	}
	if len(images.Manifests) != 2 || len(layers) != 3 {
		t.Errorf("%d images with the layers %v, want two with three in all", len(images.Manifests), layers)
	}
}
