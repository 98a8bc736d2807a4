package main

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/kconsume/kconsume/cmd/kconsume/internal/option"
)

// buildInfo is what this binary was made of.
type buildInfo struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Modified bool   `json:"modified,omitempty"` // built from files that differ from Commit's
	Time     string `json:"time,omitempty"`     // of Commit, RFC 3339
	Go       string `json:"go"`
	Platform string `json:"platform,omitempty"` // linux/amd64
	// Dependencies are all modules that are linked in, with their versions.
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
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return buildInfo{Version: "unknown", Dependencies: map[string]string{}}
	}
	return describeBuild(info)
}

func describeBuild(info *debug.BuildInfo) buildInfo {
	b := buildInfo{Version: info.Main.Version, Go: info.GoVersion, Dependencies: map[string]string{}}
	if b.Version == "" || b.Version == "(devel)" {
		b.Version = "devel"
	}
	set := map[string]string{}
	for _, s := range info.Settings {
		set[s.Key] = s.Value
	}
	b.Commit, b.Time, b.Modified = set["vcs.revision"], set["vcs.time"], set["vcs.modified"] == "true"
	if set["GOOS"] != "" && set["GOARCH"] != "" {
		b.Platform = set["GOOS"] + "/" + set["GOARCH"]
	}
	for _, d := range info.Deps {
		b.Dependencies[d.Path] = linked(d)
	}
	return b
}

// linked is the version of what was linked in for a module: a replacement's, with
// its name, where there is one.
func linked(d *debug.Module) string {
	r := d.Replace
	switch {
	case r == nil:
		return d.Version
	case r.Version == "":
		return r.Path
	}
	return r.Path + " " + r.Version
}

// rows are what a person looks for; the JSON has the rest.
func (b buildInfo) rows() [][]string {
	rows := [][]string{{"kconsume", b.Version}}
	if b.Commit != "" {
		commit := b.Commit
		if b.Modified {
			commit += ", modified"
		}
		rows = append(rows, []string{"commit", commit}, []string{"committed", b.Time})
	}
	rows = append(rows, []string{"go", b.Go})
	if b.Platform != "" {
		rows = append(rows, []string{"platform", b.Platform})
	}
	for _, d := range mainDependencies() {
		if v := b.Dependencies[d]; v != "" {
			rows = append(rows, []string{d, v})
		}
	}
	return rows
}

func versionCommand() command {
	return command{name: "version", usage: "print the version and what it is built from",
		description: "With -o json all modules that are linked in are listed with their versions.",
		use:         option.Print,
		action: func(_ context.Context, in *invocation) error {
			b := readBuild()
			if in.opts.Text("output") == "json" {
				return printJSON(in.stdout, b)
			}
			if err := table(in.stdout, b.rows()); err != nil {
				return fmt.Errorf("version: %w", err)
			}
			return nil
		}}
}
