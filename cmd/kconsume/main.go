// Command kconsume consumes Kafka topics with retry topics and dead letter
// queues, and has each record handled by a handler process.
package main

import (
	"context"
	"io"
	"os"
)

func main() {
	if isFirst() {
		os.Exit(runFirst(os.Args, os.Stderr))
	}
	sys := &system{stdout: os.Stdout, stderr: os.Stderr, env: os.LookupEnv}
	os.Exit(sys.run(context.Background(), os.Args))
}

// system is what a command has of the outside.
type system struct {
	stdout, stderr io.Writer
	env            func(string) (string, bool)
}

func (s *system) getenv(name string) string {
	v, _ := s.env(name)
	return v
}

// run runs one command line and returns the exit code.
func (s *system) run(ctx context.Context, args []string) int {
	err := newApp(s).RunContext(ctx, args)
	report(s.stderr, err)
	return exitCode(err)
}
