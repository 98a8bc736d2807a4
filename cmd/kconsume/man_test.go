package main

import (
	"strings"
	"testing"

	"github.com/kconsume/kconsume/cmd/kconsume/internal/option"
)

func TestManPages(t *testing.T) {
	s := newShell(t)
	list := s.run(t, "man")
	if list.code != 0 || list.stderr != "" {
		t.Fatalf("%+v", list)
	}
	pages := map[string]string{}
	for _, name := range strings.Fields(list.stdout) {
		got := s.run(t, "man", name)
		if got.code != 0 || !strings.HasPrefix(got.stdout, ".TH ") {
			t.Fatalf("%s: %+v", name, got)
		}
		pages[name] = got.stdout
	}
	for _, c := range commands() {
		page, ok := pages["kconsume-"+c.name+".1"]
		if ok == c.hidden {
			t.Errorf("%s: page %v, hidden %v", c.name, ok, c.hidden)
			continue
		}
		for _, l := range append(c.sub, c) {
			for _, o := range l.options() {
				if !c.hidden && !strings.Contains(page, strings.ReplaceAll(`\fB--`+o.Name, "-", `\-`)) {
					t.Errorf("kconsume %s: --%s is not in the page", c.name, o.Name)
				}
			}
		}
	}
	for _, o := range option.Table() {
		in := strings.Contains(pages["kconsume.yaml.5"], "\n"+strings.ReplaceAll(`\fB`+o.Name+`\fR: `, "-", `\-`))
		if in == o.NotInFile {
			t.Errorf("key %s is in kconsume.yaml(5): %v", o.Name, in)
		}
	}
	for _, code := range exitCodes() {
		if !strings.Contains(pages["kconsume.1"], sentence(code.means)) {
			t.Errorf("exit code %d is not in kconsume(1)", code.code)
		}
	}
}

func TestManPageThatDoesNotExist(t *testing.T) {
	s := newShell(t)
	got := s.run(t, "man", "kconsume-rum.1")
	if got.code != exitUsage || got.stderr != "kconsume: no manual page \"kconsume-rum.1\": kconsume man: did you mean kconsume-run.1?\n" {
		t.Errorf("%+v", got)
	}
	if got := s.run(t, "man", "kconsume-run"); got.code != 0 { // without its section
		t.Errorf("%+v", got)
	}
}
