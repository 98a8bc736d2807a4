package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/kconsume/kconsume/cmd/kconsume/internal/option"
	"github.com/kconsume/kconsume/cmd/kconsume/internal/scaffold"
)

func pluginNewCommand() command {
	return command{name: "new", args: []string{"NAME"}, usage: "begin a handler: a project that builds and passes its own test",
		description: "Makes a directory with the handler, its test, records to try it with, and a Makefile. Its SDK is the one of this\n" +
			"version of kconsume from the language's registry, or with --sdk the one in a directory.",
		use: option.New, required: []string{"lang"}, action: pluginNew}
}

func pluginNew(_ context.Context, in *invocation) error {
	s := in.opts
	p := scaffold.Project{Name: in.args[0], Lang: s.Text("lang"), Dir: cmp.Or(s.Text("dir"), in.args[0])}
	if err := scaffold.CheckName(p.Name); err != nil {
		return fail(exitUsage, "%w", err)
	}
	if err := takeSDK(&p, s.Text("sdk"), readBuild().Version, scaffold.Installed); err != nil {
		return err
	}
	if err := scaffold.Write(p); err != nil {
		return fail(exitConfig, "%w", err)
	}
	dir := p.Dir
	if !filepath.IsAbs(dir) && !strings.HasPrefix(dir, ".") {
		dir = "./" + dir
	}
	fmt.Fprintf(in.stdout, "made %s: the handler is in %s; next: make -C %s test\n", dir, filepath.Join(dir, p.File()), dir)
	return nil
}

// released is the version of a release, which registries have.
var released = regexp.MustCompile(`^v?([0-9]+\.[0-9]+\.[0-9]+)$`)

// takeSDK says where the project's SDK comes from.
func takeSDK(p *scaffold.Project, dir, version, installed string) error {
	if m := released.FindStringSubmatch(version); m != nil {
		p.Version = m[1]
		if dir == "" {
			return nil
		}
	}
	if dir == "" {
		if _, err := os.Stat(installed); err != nil {
			return fail(exitUsage, "no SDK of version %s: kconsume plugin new: no registry has the SDK of a build that is no release: give --sdk DIR, a checkout of kconsume", version)
		}
		dir = installed
	}
	var err error
	if p.SDK, err = scaffold.FindSDK(dir, p.Lang); err != nil {
		return fail(exitConfig, "%w", err)
	}
	return nil
}
