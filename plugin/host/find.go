package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/xrash/smetrics"
)

// Prefix is what the file name of a handler that is looked up by name begins with.
const Prefix = "kconsume-handler-"

// shownNames bounds how many names an error lists.
const shownNames = 8

// Find returns the path of a handler. A name with a slash in it is a path
// already; any other is looked up as kconsume-handler-NAME in dirs, in order.
// The error lists where it looked and the names that come nearest.
// Whether the file may be run is Check's question.
func Find(name string, dirs []string) (string, error) {
	if strings.Contains(name, "/") {
		return findPath(name)
	}
	if name == "" {
		return "", errors.New("find handler: no name given: use --handler NAME or --handler ./PATH")
	}
	for _, dir := range dirs {
		path := filepath.Join(dir, Prefix+name)
		if _, err := os.Lstat(path); err == nil {
			return filepath.Abs(path)
		}
	}
	return "", fmt.Errorf("find handler %q: no %s%s in %s; %s", name, Prefix, name, places(dirs), suggest(name, installed(dirs)))
}

func findPath(name string) (string, error) {
	if _, err := os.Lstat(name); errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("find handler %s: no such file", name)
	} else if err != nil {
		return "", fmt.Errorf("find handler: %w", err)
	}
	return filepath.Abs(name)
}

func places(dirs []string) string {
	if len(dirs) == 0 {
		return "no directory (--handler-dir is empty)"
	}
	return strings.Join(dirs, ", ")
}

// installed names the handlers in dirs, sorted. What cannot be read is left out.
func installed(dirs []string) []string {
	var names []string
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if name, ok := strings.CutPrefix(e.Name(), Prefix); ok && name != "" && !e.IsDir() {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func suggest(name string, names []string) string {
	if len(names) == 0 {
		return "there is no handler in any of them"
	}
	if near := nearest(strings.TrimPrefix(name, Prefix), names); len(near) > 0 {
		return "did you mean " + strings.Join(near, " or ") + "?"
	}
	if more := len(names) - shownNames; more > 0 {
		return fmt.Sprintf("there are %s and %d more", strings.Join(names[:shownNames], ", "), more)
	}
	return "there are " + strings.Join(names, ", ")
}

// nearest returns at most three names that a slip of the finger would explain,
// the nearest first.
func nearest(name string, names []string) []string {
	limit := max(2, len(name)/3)
	var near []string
	for _, n := range names {
		if distance(name, n) <= limit {
			near = append(near, n)
		}
	}
	slices.SortStableFunc(near, func(a, b string) int { return distance(name, a) - distance(name, b) })
	return near[:min(3, len(near))]
}

// distance is Levenshtein's, over bytes.
func distance(a, b string) int { return smetrics.WagnerFischer(a, b, 1, 1, 1) }
