package main

import (
	"fmt"
	"os"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// product is all that the image depends on.
type product struct {
	version, commit string
	time            time.Time
	license         []byte
	binaries        []executable
}

// write writes the layout and the tar file of it, and returns the digest of the
// index over all architectures.
func (p product) write(dir, tarFile string) (string, error) {
	index, err := p.index()
	if err != nil {
		return "", err
	}
	if err := os.RemoveAll(dir); err != nil {
		return "", fmt.Errorf("clear the layout's folder: %w", err)
	}
	// One entry, which is the index: tools that take "the" image of a layout
	// would otherwise ask which.
	path, err := layout.Write(dir, mutate.IndexMediaType(empty.Index, types.OCIImageIndex))
	if err != nil {
		return "", fmt.Errorf("write layout %s: %w", dir, err)
	}
	if err := path.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": p.version})); err != nil {
		return "", fmt.Errorf("write layout %s: %w", dir, err)
	}
	if err := archive(dir, tarFile, p.time); err != nil {
		return "", err
	}
	digest, err := index.Digest()
	if err != nil {
		return "", fmt.Errorf("digest of the index: %w", err)
	}
	return digest.String(), nil
}

// index is over the images of all architectures.
func (p product) index() (v1.ImageIndex, error) {
	base, err := layer(p.baseFiles(), p.time)
	if err != nil {
		return nil, err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, b := range p.binaries {
		image, err := p.image(base, b)
		if err != nil {
			return nil, fmt.Errorf("image for %s: %w", b.arch, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: plain{image}, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: b.arch}},
		})
	}
	return mutate.Annotations(index, p.labels()).(v1.ImageIndex), nil
}

// plain is an image and no other artifact. The library would note its
// configuration's type as that of an artifact, which older tools drop, and with
// it the digest.
type plain struct{ v1.Image }

func (plain) ArtifactType() (string, error) { return "", nil }

// image has two layers: what changes rarely, which all architectures share, and
// the binary.
func (p product) image(base v1.Layer, b executable) (v1.Image, error) {
	top, err := layer([]file{{name: "usr/bin/kconsume", mode: 0o755, content: b.content}}, p.time)
	if err != nil {
		return nil, err
	}
	created := v1.Time{Time: p.time}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.Append(image,
		mutate.Addendum{Layer: base, History: v1.History{Created: created, CreatedBy: "certificate authorities, users, folders"}},
		mutate.Addendum{Layer: top, History: v1.History{Created: created, CreatedBy: "kconsume " + p.version}})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", b.arch, created
	config.Config = v1.Config{
		User:       fmt.Sprintf("%d:%d", user, user),
		Entrypoint: []string{"/usr/bin/kconsume"},
		Cmd:        []string{"run"},
		WorkingDir: "/",
		// With these the socket is where kconsume status looks for it, and the
		// journal where a volume can be mounted.
		Env:          []string{"PATH=/usr/local/bin:/usr/bin", "XDG_RUNTIME_DIR=/run", "STATE_DIRECTORY=" + stateDir},
		ExposedPorts: map[string]struct{}{"9464/tcp": {}},
		Labels:       p.labels(),
	}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return nil, err
	}
	return mutate.Annotations(image, p.labels()).(v1.Image), nil
}

func (p product) labels() map[string]string {
	const at = "org.opencontainers.image."
	l := map[string]string{
		at + "title":       "kconsume",
		at + "description": "Kafka consumer with retry topics, dead letter queue and handlers in any language",
		at + "url":         "https://github.com/kconsume/kconsume",
		at + "source":      "https://github.com/kconsume/kconsume",
		at + "licenses":    "Apache-2.0",
		at + "version":     p.version,
		at + "created":     p.time.Format(time.RFC3339),
	}
	if p.commit != "" {
		l[at+"revision"] = p.commit
	}
	return l
}
