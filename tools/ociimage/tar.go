package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// layer packs files, which must be in an order that makes folders first.
func layer(files []file, at time.Time) (v1.Layer, error) {
	var packed bytes.Buffer
	w := tar.NewWriter(&packed)
	for _, f := range files {
		h := header(f.name, f.mode, int64(len(f.content)), at)
		if f.content == nil {
			h.Typeflag, h.Name = tar.TypeDir, f.name+"/"
		}
		if f.own {
			h.Uid, h.Gid = user, user
		}
		if err := errors.Join(w.WriteHeader(h), writeAll(w, f.content)); err != nil {
			return nil, fmt.Errorf("pack %s: %w", f.name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("pack a layer: %w", err)
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed.Bytes())), nil }
	l, err := tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, fmt.Errorf("compress a layer: %w", err)
	}
	return l, nil
}

func header(name string, mode, size int64, at time.Time) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: size, ModTime: at, Format: tar.FormatUSTAR}
}

func writeAll(w io.Writer, content []byte) error {
	_, err := w.Write(content)
	return err
}

// archive packs a folder's files in the order of their names.
func archive(dir, to string, at time.Time) (err error) {
	out, err := os.Create(to)
	if err != nil {
		return fmt.Errorf("write archive: %w", err)
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	w := tar.NewWriter(out)
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return errors.Join(w.WriteHeader(header(name, 0o644, int64(len(content)), at)), writeAll(w, content))
	})
	if err := errors.Join(err, w.Close()); err != nil {
		return fmt.Errorf("write archive %s: %w", to, err)
	}
	return nil
}
