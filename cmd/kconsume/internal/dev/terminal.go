package dev

import (
	"io"
	"os"

	"golang.org/x/term"
)

// terminal tells how wide out is now (0 = it is no terminal) and whether to
// use colours. The width is asked for anew each time: windows change.
func terminal(out io.Writer, getenv func(string) string) (width func() int, color bool) {
	f, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return func() int { return 0 }, false
	}
	width = func() int {
		w, _, err := term.GetSize(int(f.Fd()))
		if err != nil {
			return 0
		}
		return w
	}
	return width, getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
}
