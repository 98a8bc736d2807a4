package option

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"

	"go.yaml.in/yaml/v3"
)

// maxFile bounds a configuration file, in bytes.
const maxFile = 1 << 20

// File is a configuration file's values, unparsed.
type File struct {
	path    string
	entries map[string]entry
}

type entry struct {
	line   int
	list   bool
	values []string // of a list; else the one value
}

// Error is something in the configuration that cannot be. Its text is one line
// that says what, where, and what to do.
type Error struct{ What, Where, Todo string }

func (e *Error) Error() string { return e.What + ": " + e.Where + ": " + e.Todo }

// ReadFile reads a YAML file whose keys are the table's names. It returns all
// that is wrong with it, each an *Error.
func ReadFile(path string, table []Option) (*File, []error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, []error{unreadable(path, err)}
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, []error{unreadable(path, err)}
	}
	if len(data) > maxFile {
		return nil, []error{unreadable(path, fmt.Errorf("it is larger than %s", FormatSize(maxFile)))}
	}
	return ParseFile(path, data, table)
}

func unreadable(path string, err error) error {
	if p, ok := errors.AsType[*os.PathError](err); ok {
		err = p.Err
	}
	return &Error{"cannot read the configuration file (" + err.Error() + ")", path, "check --config"}
}

// ParseFile parses a file's content.
func ParseFile(path string, data []byte, table []Option) (*File, []error) {
	f := &File{path: path, entries: map[string]entry{}}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	if err := decoder.Decode(&doc); errors.Is(err, io.EOF) {
		return f, nil
	} else if err != nil {
		return nil, []error{syntax(path, err)}
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, []error{&Error{"more than one document", path, "keep one"}}
	}
	root := doc.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return f, nil
	}
	if root.Kind != yaml.MappingNode {
		return nil, []error{f.wrong(root.Line, "not a list of settings", "write lines such as group: billing")}
	}
	var errs []error
	for i := 0; i+1 < len(root.Content); i += 2 {
		if err := f.add(root.Content[i], root.Content[i+1], table); err != nil {
			errs = append(errs, err)
		}
	}
	return f, errs
}

func (f *File) wrong(line int, what, todo string) error {
	return &Error{what, fmt.Sprintf("%s:%d", f.path, line), todo}
}

// add takes one key and its value, or says what is wrong with them.
func (f *File) add(key, value *yaml.Node, table []Option) error {
	name := key.Value
	o := Find(table, name)
	if key.Kind != yaml.ScalarNode || o == nil || o.NotInFile {
		return f.unknown(name, key.Line, table)
	}
	if first, twice := f.entries[name]; twice {
		return f.wrong(key.Line, "key "+name+" again", fmt.Sprintf("it is on line %d already: keep one", first.line))
	}
	value = follow(value)
	e := entry{line: key.Line}
	switch value.Kind {
	case yaml.ScalarNode:
		e.values = []string{text(value)}
	case yaml.SequenceNode:
		if !o.Kind.list() {
			return f.wrong(key.Line, "key "+name+" is a list", "give one value")
		}
		e.list = true
		for _, item := range value.Content {
			item = follow(item)
			if item.Kind != yaml.ScalarNode {
				return f.wrong(item.Line, "key "+name+" holds more than texts", "write a list such as [a, b]")
			}
			e.values = append(e.values, text(item))
		}
	default:
		return f.wrong(key.Line, "key "+name+" holds keys of its own", "give one value, or a list such as [a, b]")
	}
	f.entries[name] = e
	return nil
}

func (f *File) unknown(name string, line int, table []Option) error {
	var names []string
	for _, o := range table {
		if !o.NotInFile {
			names = append(names, o.Name)
		}
	}
	todo := "see kconsume config show for the keys there are"
	if near := Nearest(name, names); near != "" {
		todo = "did you mean " + near + "?"
	}
	return f.wrong(line, fmt.Sprintf("unknown key %q", name), todo)
}

// follow replaces an alias with what it stands for.
func follow(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		return n.Alias
	}
	return n
}

// text is a scalar as it was written; null is as empty as "".
func text(n *yaml.Node) string {
	if n.Tag == "!!null" {
		return ""
	}
	return n.Value
}

func syntax(path string, err error) error {
	what, line := err.Error(), ""
	if m := regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)`).FindStringSubmatch(what); m != nil {
		what = m[2]
		if m[1] != "" {
			line = ":" + m[1]
		}
	}
	return &Error{"not YAML (" + what + ")", path + line, "mend it there or just above"}
}
