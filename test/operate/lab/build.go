package lab

import (
	"fmt"
	"os"

	"github.com/kconsume/kconsume/test/suite"
)

// Programs that Build builds, by what they are called.
const (
	Kconsume = "kconsume"
	Probe    = "kconsume-handler-probe" // does what a record's value says
	Gate     = "kconsume-handler-gate"  // fails until a file is there
)

// Build builds the programs into a folder of its own, and returns it.
func Build() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "kconsume-bin-"); err != nil {
		return "", fmt.Errorf("make a folder for programs: %w", err)
	}
	if err := suite.Build(dir, map[string]string{Kconsume: "cmd/kconsume", Probe: "test/probe", Gate: "test/operate/gate"}); err != nil {
		_ = os.RemoveAll(dir) // the build's error is the one to tell
		return "", err
	}
	return dir, nil
}
