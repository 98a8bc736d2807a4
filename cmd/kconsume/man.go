package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kconsume/kconsume/cmd/kconsume/internal/option"
	"github.com/kconsume/kconsume/cmd/kconsume/internal/roff"
)

func manCommand() command {
	return command{name: "man", args: []string{"[PAGE]"}, usage: "list the manual pages, or print one for man(1)",
		description: "Without PAGE it prints the file names of all pages, a line each. Read one by\n" +
			"kconsume man kconsume-run.1 | man -l -",
		action: man}
}

func man(_ context.Context, in *invocation) error {
	names := pageNames()
	if len(in.args) == 0 {
		_, err := fmt.Fprintln(in.stdout, strings.Join(names, "\n"))
		return err
	}
	asked := in.args[0]
	for _, p := range manPages() {
		if asked != p.file() && asked != p.name {
			continue
		}
		page := roff.New(roff.Heading{Name: p.name, Section: p.section, Date: builtOn(), Source: "kconsume " + readBuild().Version})
		p.write(page)
		_, err := fmt.Fprint(in.stdout, page)
		return err
	}
	todo := "kconsume man lists them"
	if near := option.Nearest(asked, names); near != "" {
		todo = "did you mean " + near + "?"
	}
	return fail(exitUsage, "no manual page %q: kconsume man: %s", asked, todo)
}

// builtOn is the day of the commit, so that two builds of it have one date.
func builtOn() string {
	day, _, _ := strings.Cut(readBuild().Time, "T")
	return day
}

// manPage is a page of the manual.
type manPage struct {
	name, section, about string
	write                func(*roff.Page)
}

// file is the page's name as a file.
func (p manPage) file() string { return p.name + "." + p.section }

// ref is the page's name as others name it.
func (p manPage) ref() string { return p.name + "(" + p.section + ")" }

// manPages are one for the program, one for each of its commands, and one for
// the file of settings.
func manPages() []manPage {
	first := manPage{name: "kconsume", section: "1", about: "consume Kafka topics with retry topics, dead letter queues and handler plugins"}
	first.write = func(p *roff.Page) { first.overview(p) }
	pages := []manPage{first}
	for _, c := range commands() {
		if c.hidden {
			continue
		}
		m := manPage{name: "kconsume-" + c.name, section: "1", about: c.usage}
		m.write = func(p *roff.Page) { m.command(p, c) }
		pages = append(pages, m)
	}
	file := manPage{name: "kconsume.yaml", section: "5", about: "settings of kconsume"}
	file.write = func(p *roff.Page) { file.settings(p) }
	return append(pages, file)
}

func pageNames() (names []string) {
	for _, p := range manPages() {
		names = append(names, p.file())
	}
	return names
}

func (m manPage) heading(p *roff.Page) {
	p.Section("NAME")
	p.Plain(m.name + " - " + m.about)
}

// overview is kconsume(1).
func (m manPage) overview(p *roff.Page) {
	m.heading(p)
	p.Section("SYNOPSIS")
	p.Usage(roff.Bold("kconsume") + " [" + roff.Bold("--config") + " " + roff.Italic("FILE") + "] " + roff.Italic("COMMAND") + " [" + roff.Italic("FLAG") + "...]")
	p.Section("DESCRIPTION")
	p.Text("kconsume consumes topics and hands each record to a handler, a program of yours that it starts. " +
		"A record that fails for a while comes back from a retry topic later, without holding up those behind it. " +
		"A record that cannot succeed goes to a dead letter queue, where a person looks at it and replays it. " +
		"Nothing is committed before it is handled or safely written elsewhere.")
	p.Section("COMMANDS")
	for _, c := range commands() {
		if !c.hidden {
			p.Item(roff.Bold("kconsume-"+c.name)+"(1)", c.usage)
		}
	}
	p.Section("OPTIONS")
	p.Text("These may stand before the command as well as behind it.")
	for _, o := range option.Table() {
		if o.Global {
			manFlag(p, o, "")
		}
	}
	precedence(p)
	files(p)
	signals(p)
	exitStatus(p)
	m.seeAlso(p)
}

// command is the page of a command and of those below it.
func (m manPage) command(p *roff.Page, c command) {
	m.heading(p)
	p.Section("SYNOPSIS")
	leaves := c.sub
	if len(leaves) == 0 {
		leaves = []command{c}
		p.Usage(synopsis("kconsume "+c.name, c))
	}
	for _, s := range c.sub {
		p.Usage(synopsis("kconsume "+c.name+" "+s.name, s))
	}
	p.Section("DESCRIPTION")
	if len(c.sub) == 0 {
		p.Text(described(c))
	}
	for _, s := range c.sub {
		p.Item(roff.Bold("kconsume "+c.name+" "+s.name), described(s))
	}
	var all []option.Option
	of := map[string][]string{}
	for _, l := range leaves {
		for _, o := range l.options() {
			if option.Find(all, o.Name) == nil {
				all = append(all, o)
			}
			of[o.Name] = append(of[o.Name], l.name)
		}
	}
	if len(all) > 0 {
		p.Section("OPTIONS")
	}
	for _, o := range all {
		only := ""
		if len(of[o.Name]) < len(leaves) {
			only = "Of " + strings.Join(of[o.Name], ", ") + " only."
		}
		manFlag(p, o, only)
	}
	if slices.ContainsFunc(all, func(o option.Option) bool { return !o.NotInFile }) {
		precedence(p)
	}
	exitStatus(p)
	m.seeAlso(p)
}

func synopsis(path string, c command) roff.Term {
	t := roff.Bold(path)
	for _, a := range c.args {
		t += " " + roff.Italic(a)
	}
	for _, r := range c.required {
		if o := option.Find(option.Table(), r); o != nil {
			t += " " + roff.Bold("--"+r) + " " + roff.Italic(o.Arg)
		}
	}
	if len(c.options()) > 0 {
		t += " [" + roff.Italic("FLAG") + "...]"
	}
	return t
}

func described(c command) string {
	text := strings.ToUpper(c.usage[:1]) + c.usage[1:] + "."
	if c.description != "" {
		text += " " + c.description
	}
	return text
}

// manFlag is an option as a flag; note is added to what it means.
func manFlag(p *roff.Page, o option.Option, note string) {
	term := roff.Bold("--" + o.Name)
	if o.Alias != "" {
		term += ", " + roff.Bold("-"+o.Alias)
	}
	switch {
	case o.Kind == option.Bool && o.Default == "true":
		term += roff.Bold("=false")
	case o.Kind != option.Bool && o.Arg != "":
		term += " " + roff.Italic(o.Arg)
	}
	p.Item(term, strings.Join(nonEmpty(sentence(o.Help), oneOfChoices(o), defaultOf(o), note), " "))
}

func sentence(s string) string {
	s = strings.ToUpper(s[:1]) + s[1:]
	if !strings.HasSuffix(s, ".") {
		s += "."
	}
	return s
}

func oneOfChoices(o option.Option) string {
	if len(o.Choices) == 0 || o.Kind != option.Choice {
		return ""
	}
	return "One of " + strings.Join(o.Choices, ", ") + "."
}

func defaultOf(o option.Option) string {
	if o.Default == "" || o.Kind == option.Bool && o.Default == "false" {
		return ""
	}
	return "Default: " + strings.ReplaceAll(o.Default, "\n", ", ") + "."
}

func nonEmpty(texts ...string) []string {
	return slices.DeleteFunc(texts, func(s string) bool { return s == "" })
}

func precedence(p *roff.Page) {
	p.Section("ENVIRONMENT")
	p.Text("Each setting has a name in the environment, KCONSUME_ and the flag's name in capitals with _ for -, " +
		"such as KCONSUME_HANDLER_TIMEOUT, and a key in the file that --config or KCONSUME_CONFIG names, see kconsume.yaml(5). " +
		"A flag counts before the environment, that before the file, and that before the default.")
}

func files(p *roff.Page) {
	p.Section("FILES")
	for _, f := range [][2]string{
		{"/etc/kconsume/NAME.yaml", "settings of the service kconsume@NAME"},
		{"/etc/kconsume/credentials/", "secrets, which root alone reads and the service manager hands to the services"},
		{"/usr/local/libexec/kconsume/handlers/kconsume-handler-NAME", "handlers that were installed by hand; those of packages are in /usr/libexec/kconsume/handlers"},
		{"/run/kconsume/NAME/", "the admin socket of the service"},
		{"/var/lib/kconsume/NAME/", "what the service had in hand, should it die"},
		{"/usr/share/kconsume/", "alert rules, dashboard, runbooks, and drop-ins for the service"},
	} {
		p.Item(roff.Italic(f[0]), sentence(f[1]))
	}
}

func signals(p *roff.Page) {
	p.Section("SIGNALS")
	p.Item(roff.Bold("SIGTERM")+", "+roff.Bold("SIGINT"), "kconsume run drains: what was begun is finished and committed. A second one ends it at once.")
	p.Item(roff.Bold("SIGHUP"), "kconsume run starts the handler anew and reads again what may change while it runs.")
}

func exitStatus(p *roff.Page) {
	p.Section("EXIT STATUS")
	for _, e := range exitCodes() {
		p.Item(roff.Bold(strconv.Itoa(e.code)), sentence(e.means))
	}
}

type exitMeaning struct {
	code  int
	means string
}

func exitCodes() []exitMeaning {
	return []exitMeaning{
		{exitOK, "done"},
		{exitFailed, "it failed"},
		{exitChanges, "a plan has changes, and nothing is wrong"},
		{exitUsage, "the command line is wrong"},
		{exitUnavailable, "no broker, or no daemon, answers"},
		{exitLater, "try again later"},
		{exitDenied, "denied"},
		{exitConfig, "what the settings ask for cannot be: trying again does not help"},
	}
}

func (m manPage) seeAlso(p *roff.Page) {
	var others []string
	for _, o := range manPages() {
		if o.name != m.name {
			others = append(others, o.ref())
		}
	}
	p.Section("SEE ALSO")
	p.Text(strings.Join(others, ", "))
}

// settings is kconsume.yaml(5).
func (m manPage) settings(p *roff.Page) {
	m.heading(p)
	p.Section("DESCRIPTION")
	p.Text("A YAML file of settings, that --config or KCONSUME_CONFIG names. The service kconsume@NAME reads /etc/kconsume/NAME.yaml. " +
		"Its keys are the names of the flags. What a command has no use for is left alone; a key that does not exist is an error. " +
		"A flag counts before the environment, that before the file, and that before the default: kconsume config show --origin tells which did.")
	p.Section("EXAMPLE")
	p.Example(
		"brokers: [kafka1.example:9092, kafka2.example:9092]",
		"group: billing",
		"topic: orders.confirmed",
		"handler: orders",
		"retry: [5s, 30s, 10m]",
	)
	p.Section("KEYS")
	for _, o := range option.Table() {
		if o.NotInFile {
			continue
		}
		p.Item(roff.Bold(o.Name)+": "+roff.Italic(kindOf(o)),
			strings.Join(nonEmpty(sentence(o.Help), defaultOf(o), "In the environment: "+o.Env()+"."), " "))
	}
	m.seeAlso(p)
}

// kindOf is what a key's value looks like.
func kindOf(o option.Option) string {
	switch o.Kind {
	case option.List, option.Lines:
		return "[" + cmp.Or(strings.TrimSuffix(o.Arg, ",..."), "TEXT") + ", ...]"
	case option.Durations:
		return "[DURATION, ...]"
	case option.Bool:
		return "true|false"
	case option.Choice:
		return strings.Join(o.Choices, "|")
	}
	return cmp.Or(o.Arg, "TEXT")
}
