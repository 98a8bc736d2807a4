// Package conformance runs one handler in every language through the same
// tests: see README.md.
package conformance

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(hostEnv); path != "" {
		hostProcess(path, os.Getenv(commandEnv))
		return
	}
	os.Exit(m.Run())
}

// test is one case: it gets the path of a language's handler.
type test struct {
	name string
	run  func(t *testing.T, path string)
}

func cases() []test {
	return []test{
		{"hello", hello},
		{"handshake", handshake},
		{"by-hand", byHand},
		{"no-lifeline", noLifeline},
		{"frames", frames},
		{"half-closed", halfClosed},
		{"beats", beats},
		{"tls", secured},
		{"batches", batches},
		{"in-order", inOrder},
		{"null-and-empty", nullAndEmpty},
		{"fields", fields},
		{"verdicts", verdicts},
		{"kinds-of-errors", kindsOfErrors},
		{"emit", emit},
		{"no-utf8", noUTF8},
		{"long-texts", longTexts},
		{"bug", bug},
		{"concurrency", concurrency},
		{"deadline", deadline},
		{"late-calls", lateCalls},
		{"past-the-deadline", pastTheDeadline},
		{"cancel", cancel},
		{"drain", drain},
		{"stop", stop},
		{"signals", signals},
		{"prints", prints},
		{"crash", crash},
		{"large", large},
		{"lifeline", lifeline},
		{"lifeline-blocked", lifelineBlocked},
		{"lifeline-busy", lifelineBusy},
		{"batch-handler", batchHandler},
		{"batch-failure", batchFailure},
	}
}

// TestConformance is the matrix of languages and cases.
func TestConformance(t *testing.T) {
	result := map[string]string{} // by language/case
	for _, language := range languages() {
		t.Run(language, func(t *testing.T) {
			path := setUp(t, language)
			for _, c := range cases() {
				cell := language + "/" + c.name
				passed := t.Run(c.name, func(t *testing.T) {
					result[cell] = "fails"
					c.run(t, path)
				})
				if passed && result[cell] != "" {
					result[cell] = "ok"
				}
			}
		})
	}
	t.Log("\n" + matrix(result))
}

// matrix is markdown; a case that did not run, because of -run or because the
// language could not be set up, is a dash.
func matrix(result map[string]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| | %s |\n|---%s|\n", strings.Join(languages(), " | "), strings.Repeat("|---", len(languages())))
	for _, c := range cases() {
		fmt.Fprintf(&b, "| %s |", c.name)
		for _, language := range languages() {
			word := result[language+"/"+c.name]
			if word == "" {
				word = "–"
			}
			fmt.Fprintf(&b, " %s |", word)
		}
		b.WriteString("\n")
	}
	return b.String()
}
