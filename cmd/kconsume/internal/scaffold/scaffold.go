// Package scaffold makes the project of a new handler: one that builds and
// passes its own test at once.
package scaffold

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"text/template"
)

//go:embed templates
var templates embed.FS

// Project is what is made.
type Project struct {
	Name string // see CheckName
	Lang string // go, python, node, java
	Dir  string // it must not exist, or be empty
	// SDK is the absolute directory of the language's SDK. Without it the one of
	// Version is taken from the language's registry.
	SDK, Version string
}

// maxName bounds a handler's name: it becomes that of a file, a module and a
// package.
const maxName = 40

var goodName = regexp.MustCompile(`^[a-z][a-z0-9]*(-[a-z0-9]+)*$`)

// CheckName says what is wrong with the name of a handler to be, and the rule.
func CheckName(name string) error {
	if len(name) > maxName || !goodName.MatchString(name) {
		return fmt.Errorf("bad name %q: a handler is named with small letters, digits and single hyphens between them, begins with a letter and has at most %d characters, such as order-mails", name, maxName)
	}
	return nil
}

// File is where a language's handler stands in its project.
func (p *Project) File() string {
	return map[string]string{"go": "main.go", "python": "handler.py", "node": "handler.js", "java": "src/main/java/handler/Main.java"}[p.Lang]
}

// Handler is the executable that make builds.
func (p *Project) Handler() string { return "build/kconsume-handler-" + p.Name }

// Write makes the project. Whatever it cannot make is told with what is to be
// done, and nothing that is there is changed.
func Write(p Project) error {
	if err := CheckName(p.Name); err != nil {
		return err
	}
	if p.Lang == "java" && p.SDK != "" {
		var err error
		if p.Version, err = javaVersion(p.SDK); err != nil {
			return err
		}
	}
	files, err := p.files()
	if err != nil {
		return err
	}
	if err := emptyDir(p.Dir); err != nil {
		return err
	}
	for name, text := range files {
		to := filepath.Join(p.Dir, filepath.FromSlash(name))
		mode := fs.FileMode(0o666)
		if bytes.HasPrefix(text, []byte("#!")) {
			mode = 0o777
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o777); err != nil {
			return fmt.Errorf("make project: %w", err)
		}
		if err := os.WriteFile(to, text, mode); err != nil {
			return fmt.Errorf("make project: %w", err)
		}
	}
	return nil
}

// emptyDir makes a directory, or accepts one with nothing in it.
func emptyDir(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return fmt.Errorf("make project: %w", err)
		}
		return nil
	case err != nil:
		return fmt.Errorf("make project: %w", err)
	case len(entries) > 0:
		return fmt.Errorf("make project in %s: it is not empty: name another directory with --dir", dir)
	}
	return nil
}

// files are the project's files by their names. A template is named as its file
// with .tmpl behind; of a hidden one the dot is left out.
func (p *Project) files() (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, root := range []string{"templates/all", "templates/" + p.Lang} {
		err := fs.WalkDir(templates, root, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			t, err := template.ParseFS(templates, name)
			if err != nil {
				return err
			}
			var b bytes.Buffer
			if err := t.Option("missingkey=error").Execute(&b, p); err != nil {
				return err
			}
			to := strings.TrimSuffix(strings.TrimPrefix(name, root+"/"), ".tmpl")
			if base := path.Base(to); base == "gitignore" || base == "npmrc" {
				to = path.Join(path.Dir(to), "."+base)
			}
			if len(bytes.TrimSpace(b.Bytes())) > 0 { // else it has no use in this project
				files[to] = b.Bytes()
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("make project for %s: %w", p.Lang, err)
		}
	}
	return files, nil
}
