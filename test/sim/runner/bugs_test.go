package main

import (
	"go/parser"
	"go/token"
	"testing"
)

// Each bug can still be planted: who changes the text that it stands in sees here
// that it is to be planted anew.
func TestBugsCanBePlanted(t *testing.T) {
	seen := map[string]bool{}
	for _, b := range bugs() {
		if seen[b.name] {
			t.Errorf("two bugs are called %q", b.name)
		}
		seen[b.name] = true
		text, err := b.mutant("../../..")
		if err != nil {
			t.Error(err)
			continue
		}
		if _, err := parser.ParseFile(token.NewFileSet(), b.file, text, 0); err != nil {
			t.Errorf("%q: %v", b.name, err)
		}
	}
}
