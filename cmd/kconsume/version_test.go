package main

import (
	"debug/buildinfo"
	"encoding/json"
	"reflect"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
)

func TestDescribeBuild(t *testing.T) {
	settings := func(pairs ...string) (out []debug.BuildSetting) {
		for i := 0; i < len(pairs); i += 2 {
			out = append(out, debug.BuildSetting{Key: pairs[i], Value: pairs[i+1]})
		}
		return out
	}
	none := map[string]string{}
	for _, c := range []struct {
		name string
		info debug.BuildInfo
		want buildInfo
		rows string
	}{
		{"a release", debug.BuildInfo{
			GoVersion: "go1.26.8", Main: debug.Module{Version: "v1.2.3"},
			Settings: settings("GOOS", "linux", "GOARCH", "arm64", "vcs.revision", "abc", "vcs.time", "2026-11-30T01:02:03Z", "vcs.modified", "false"),
			Deps:     []*debug.Module{{Path: "example.com/small", Version: "v0.1.0"}, {Path: "google.golang.org/grpc", Version: "v1.2.0"}},
		}, buildInfo{
			Version: "v1.2.3", Commit: "abc", Time: "2026-11-30T01:02:03Z", Go: "go1.26.8", Platform: "linux/arm64",
			Dependencies: map[string]string{"example.com/small": "v0.1.0", "google.golang.org/grpc": "v1.2.0"},
		}, "kconsume v1.2.3|commit abc|committed 2026-11-30T01:02:03Z|go go1.26.8|platform linux/arm64|google.golang.org/grpc v1.2.0"},
		{"changed files", debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: settings("vcs.revision", "abc", "vcs.modified", "true")},
			buildInfo{Version: "devel", Commit: "abc", Modified: true, Dependencies: none}, "kconsume devel|commit abc, modified|committed |go "},
		{"no repository", debug.BuildInfo{GoVersion: "go1.26.8"},
			buildInfo{Version: "devel", Go: "go1.26.8", Dependencies: none}, "kconsume devel|go go1.26.8"},
		{"replacements", debug.BuildInfo{Deps: []*debug.Module{
			{Path: "a", Version: "v1.0.0", Replace: &debug.Module{Path: "b", Version: "v1.0.1"}},
			{Path: "c", Version: "v1.0.0", Replace: &debug.Module{Path: "../c"}},
		}}, buildInfo{Version: "devel", Dependencies: map[string]string{"a": "b v1.0.1", "c": "../c"}}, "kconsume devel|go "},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := describeBuild(&c.info)
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
			var rows []string
			for _, r := range got.rows() {
				rows = append(rows, strings.Join(r, " "))
			}
			if text := strings.Join(rows, "|"); text != c.rows {
				t.Errorf("rows %q, want %q", text, c.rows)
			}
		})
	}
}

// The command tells what Go's own reader finds in the file.
func TestVersionIsTheBinarys(t *testing.T) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	sh := newShell(t)
	var got buildInfo
	if err := json.Unmarshal([]byte(sh.run(t, "version", "-o", "json").stdout), &got); err != nil {
		t.Fatal(err)
	}
	if got.Go != runtime.Version() || got.Platform != runtime.GOOS+"/"+runtime.GOARCH {
		t.Errorf("go %q on %q, built with %q on this platform", got.Go, got.Platform, runtime.Version())
	}
	if len(got.Dependencies) != len(info.Deps) {
		t.Errorf("%d dependencies, the binary has %d", len(got.Dependencies), len(info.Deps))
	}
	for _, d := range info.Deps {
		if got.Dependencies[d.Path] != linked(d) {
			t.Errorf("%s is %q, want %q", d.Path, got.Dependencies[d.Path], linked(d))
		}
	}
	text := sh.run(t, "version").stdout
	for _, d := range mainDependencies() {
		if v := got.Dependencies[d]; v == "" || !strings.Contains(text, v) {
			t.Errorf("%s %q: it is not in the binary, or not in %s", d, v, text)
		}
	}
}
