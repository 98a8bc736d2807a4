package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/kconsume/kconsume/admin/console"
	"github.com/kconsume/kconsume/cmd/kconsume/internal/option"
)

func configShowCommand() command {
	return command{name: "show", usage: "print the settings in effect",
		description: "Prints every setting of run as it is in effect: flag, then environment, then file, then default.\n" +
			"--origin tells where each comes from. Values of --handler-env are left out: they may be secrets.",
		use: option.Run | option.Print | option.Show, action: configShow}
}

func configShow(_ context.Context, in *invocation) error {
	settings := settingsOf(in.opts)
	origin := in.opts.Bool("origin")
	if in.opts.Text("output") == "json" {
		return printJSON(in.stdout, settingsJSON(settings, origin))
	}
	head := []string{"SETTING", "VALUE"}
	if origin {
		head = append(head, "ORIGIN")
	}
	rows := [][]string{head}
	for _, s := range settings {
		row := []string{s.Name, shown(s.Value)}
		if origin {
			row = append(row, strings.TrimSpace(string(s.Origin.Source)+" "+s.Origin.At))
		}
		rows = append(rows, row)
	}
	return table(in.stdout, rows)
}

// shown is a value on one line; lists are quoted where a value could be taken
// for two.
func shown(v any) string {
	list, ok := v.([]string)
	if !ok {
		return fmt.Sprint(v)
	}
	texts := make([]string, len(list))
	for i, t := range list {
		texts[i] = t
		if t == "" || strings.ContainsAny(t, ", \t\n\"") {
			texts[i] = fmt.Sprintf("%q", t)
		}
	}
	return "[" + strings.Join(texts, ", ") + "]"
}

type settingJSON struct {
	Value  any    `json:"value"`
	Origin string `json:"origin"`
	At     string `json:"at,omitempty"`
}

// settingsJSON is an object of the settings, in the table's order.
func settingsJSON(settings []option.Setting, origin bool) json.Marshaler {
	var o orderedObject
	for _, s := range settings {
		var v any = s.Value
		if origin {
			v = settingJSON{s.Value, string(s.Origin.Source), s.Origin.At}
		}
		o = append(o, member{s.Name, v})
	}
	return o
}

type member struct {
	name  string
	value any
}

type orderedObject []member

// MarshalJSON keeps the order.
func (o orderedObject) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, m := range o {
		if i > 0 {
			b = append(b, ',')
		}
		name, err := json.Marshal(m.name)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(m.value)
		if err != nil {
			return nil, err
		}
		b = append(append(append(b, name...), ':'), value...)
	}
	return append(b, '}'), nil
}

// settingsOf are the settings as they may be shown.
func settingsOf(s *option.Set) []option.Setting {
	all := s.Settings()
	table := option.Table()
	for i := range all {
		o := option.Find(table, all[i].Name)
		if values, ok := all[i].Value.([]string); ok && o.Redact != nil {
			shown := make([]string, len(values))
			for j := range values {
				shown[j] = o.Redacted(values[j])
			}
			all[i].Value = shown
		}
	}
	return all
}

// settingsShown are the settings as the console shows them.
func settingsShown(in *invocation) (out []console.Setting) {
	for _, s := range settingsOf(in.opts) {
		out = append(out, console.Setting{Name: s.Name, Value: shown(s.Value), Origin: strings.TrimSpace(string(s.Origin.Source) + " " + s.Origin.At)})
	}
	return out
}
