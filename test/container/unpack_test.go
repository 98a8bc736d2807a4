package container_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The layout is read here as its specification says, with nothing of the
// library that wrote it.

// descriptor points at a blob.
type descriptor struct {
	Digest   string
	Size     int64
	Platform struct{ Architecture, OS string }
}

// manifest is that of an index (Manifests) or of one image (Config, Layers).
type manifest struct {
	Manifests   []descriptor
	Config      descriptor
	Layers      []descriptor
	Annotations map[string]string
}

// imageConfig is how a container of the image is started.
type imageConfig struct {
	Created string
	Config  struct {
		User            string
		Env             []string
		Entrypoint, Cmd []string
		Labels          map[string]string
	}
}

// image is the one for this machine.
type image struct {
	layout   string
	index    manifest
	manifest manifest
	config   imageConfig
}

func openImage(t *testing.T, layout, arch string) *image {
	t.Helper()
	top := parse[manifest](t, read(t, filepath.Join(layout, "index.json")))
	if len(top.Manifests) != 1 {
		t.Fatalf("%d entries in index.json, want one", len(top.Manifests))
	}
	i := &image{layout: layout}
	i.index = parse[manifest](t, i.blob(t, top.Manifests[0]))
	for _, d := range i.index.Manifests {
		if d.Platform.OS == "linux" && d.Platform.Architecture == arch {
			i.manifest = parse[manifest](t, i.blob(t, d))
			i.config = parse[imageConfig](t, i.blob(t, i.manifest.Config))
			return i
		}
	}
	t.Fatalf("no image for %s", arch)
	return nil
}

// blob reads what a descriptor points at, and sees that it is that.
func (i *image) blob(t *testing.T, d descriptor) []byte {
	t.Helper()
	digest, ok := strings.CutPrefix(d.Digest, "sha256:")
	if !ok {
		t.Fatalf("digest %s", d.Digest)
	}
	b := read(t, filepath.Join(i.layout, "blobs/sha256", digest))
	if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != digest || int64(len(b)) != d.Size {
		t.Fatalf("the blob %s has %d bytes and the digest %x, want %d bytes", digest, len(b), sum, d.Size)
	}
	return b
}

// unpack lays out the image's files as a container engine does.
func (i *image) unpack(t *testing.T, root string) {
	t.Helper()
	for _, d := range i.manifest.Layers {
		for h, content := range i.files(t, d) {
			path := filepath.Join(root, h.Name)
			var err error
			switch h.Typeflag {
			case tar.TypeDir:
				if err = os.Mkdir(path, 0o700); errors.Is(err, os.ErrExist) {
					err = nil
				}
			case tar.TypeReg:
				err = os.WriteFile(path, content, 0o600)
			default:
				t.Fatalf("%s has the type %q", h.Name, h.Typeflag)
			}
			// In this order: giving a file away clears bits of its mode.
			if err := errors.Join(err, os.Chown(path, h.Uid, h.Gid), os.Chmod(path, h.FileInfo().Mode())); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// files are a layer's entries, in order.
func (i *image) files(t *testing.T, d descriptor) func(func(*tar.Header, []byte) bool) {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(i.blob(t, d)))
	if err != nil {
		t.Fatal(err)
	}
	return func(yield func(*tar.Header, []byte) bool) {
		for r := tar.NewReader(z); ; {
			h, err := r.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			content, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			if !yield(h, content) {
				return
			}
		}
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func parse[T any](t *testing.T, b []byte) (v T) {
	t.Helper()
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatalf("%v in %s", err, b)
	}
	return v
}
