// Command testsum reads go test -json from stdin, for any number of runs. It
// shows go test's own line for each package and all output of what failed, and
// ends with a line "N passed, N failed" that counts tests and subtests. It
// fails if any test did, or if there was none.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
)

func main() {
	ok, err := summarise(os.Stdin, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testsum:", err)
	}
	if !ok || err != nil {
		os.Exit(1)
	}
}

// event is one line of go test -json; see go doc test2json.
type event struct {
	Action  string
	Package string
	Test    string // empty: about the package
	Output  string
}

// test names one test, or with an empty name a whole package.
type test struct{ pkg, name string }

// summary is what is known so far.
type summary struct {
	out                     io.Writer
	said                    map[test][]string // output of what has not ended
	broken                  map[string]bool   // packages with a failed test
	passed, failed, skipped int
}

func summarise(in io.Reader, out io.Writer) (ok bool, err error) {
	s := &summary{out: out, said: map[test][]string{}, broken: map[string]bool{}}
	lines := bufio.NewReader(in)
	for err == nil {
		var line string
		line, err = lines.ReadString('\n')
		s.line(line)
	}
	if err != io.EOF {
		return false, fmt.Errorf("read test output: %w", err)
	}
	for unended, said := range s.said {
		fmt.Fprintf(out, "%s %s did not end\n%s", unended.pkg, unended.name, strings.Join(said, ""))
		s.failed++
	}
	if s.skipped > 0 {
		fmt.Fprintf(out, "%d skipped\n", s.skipped)
	}
	fmt.Fprintf(out, "%d passed, %d failed\n", s.passed, s.failed)
	return s.failed == 0 && s.passed > 0, nil
}

// line takes a line of the stream; what is not JSON is for people.
func (s *summary) line(line string) {
	var e event
	if json.Unmarshal([]byte(line), &e) != nil || e.Action == "" {
		fmt.Fprint(s.out, line)
		return
	}
	t := test{e.Package, e.Test}
	switch e.Action {
	case "output":
		s.said[t] = append(s.said[t], e.Output)
	case "build-output":
		fmt.Fprint(s.out, e.Output)
	case "pass", "fail", "skip":
		s.end(t, e.Action)
	}
}

func (s *summary) end(t test, action string) {
	said := s.said[t]
	delete(s.said, t)
	if t.name == "" {
		s.endPackage(t.pkg, action, said)
		return
	}
	switch action {
	case "pass":
		s.passed++
	case "skip":
		s.skipped++
	case "fail":
		s.failed++
		s.broken[t.pkg] = true
	}
	if action != "pass" {
		fmt.Fprint(s.out, strings.Join(said, ""))
	}
}

// endPackage shows go test's verdict on a package, or everything it said if
// it failed as a whole: it did not build, a test ended the process.
func (s *summary) endPackage(pkg, action string, said []string) {
	if action == "fail" && !s.broken[pkg] {
		s.failed++
	}
	for _, line := range said {
		verdict := strings.HasPrefix(line, "ok ") || strings.HasPrefix(line, "FAIL\t")
		if action == "fail" || verdict {
			fmt.Fprint(s.out, line)
		}
	}
}
