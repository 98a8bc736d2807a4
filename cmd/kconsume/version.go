package main

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/kconsume/kconsume/cmd/kconsume/internal/option"
)

// buildInfo is what this binary was made of.
type buildInfo struct {
	Version      string            `json:"version"`
	Commit       string            `json:"commit,omitempty"`
	Go           string            `json:"go"`
	Dependencies map[string]string `json:"dependencies"`
}

// mainDependencies are those that decide how kconsume behaves towards others.
func mainDependencies() []string {
	return []string{
		"github.com/segmentio/kafka-go", "github.com/hashicorp/go-plugin",
		"github.com/prometheus/client_golang", "github.com/urfave/cli/v2", "google.golang.org/grpc",
	}
}

// readBuild reads what the linker wrote down.
func readBuild() buildInfo {
	b := buildInfo{Version: "unknown", Dependencies: map[string]string{}}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Version, b.Go = info.Main.Version, info.GoVersion
	if b.Version == "" || b.Version == "(devel)" {
		b.Version = "devel"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			b.Commit = s.Value
		}
	}
	for _, d := range info.Deps {
		if slices.Contains(mainDependencies(), d.Path) {
			b.Dependencies[d.Path] = d.Version
		}
	}
	return b
}

func versionCommand() command {
	return command{name: "version", usage: "print the version and what it is built from", use: option.Print,
		action: func(_ context.Context, in *invocation) error {
			b := readBuild()
			if in.opts.Text("output") == "json" {
				return printJSON(in.stdout, b)
			}
			rows := [][]string{{"kconsume", b.Version}}
			if b.Commit != "" {
				rows = append(rows, []string{"commit", b.Commit})
			}
			rows = append(rows, []string{"go", b.Go})
			for _, d := range mainDependencies() {
				if v := b.Dependencies[d]; v != "" {
					rows = append(rows, []string{d, v})
				}
			}
			if err := table(in.stdout, rows); err != nil {
				return fmt.Errorf("version: %w", err)
			}
			return nil
		}}
}
