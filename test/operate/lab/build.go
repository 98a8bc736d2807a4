package lab

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
	for name, pkg := range map[string]string{Kconsume: "cmd/kconsume", Probe: "test/probe", Gate: "test/operate/gate"} {
		out, err := exec.Command("go", "build", "-o", filepath.Join(dir, name), "github.com/kconsume/kconsume/"+pkg).CombinedOutput()
		if err != nil {
			_ = os.RemoveAll(dir) // the build's error is the one to tell
			return "", fmt.Errorf("build %s: %w\n%s", pkg, err, out)
		}
	}
	return dir, nil
}
