package kafka

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
)

// Start starts a cluster for one test, which ends with it.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	c, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(c.Log())
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// Shared is one cluster for the tests of a package, started by the first that
// asks. Its tests use topics and groups of their own and leave its nodes alone:
//
//	var broker kafka.Shared
//
//	func TestMain(m *testing.M) { os.Exit(broker.Run(m)) }
type Shared struct {
	Options Options

	mu      sync.Mutex
	cluster *Cluster
	err     error
}

// Cluster returns the package's cluster.
func (s *Shared) Cluster(t testing.TB) *Cluster {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cluster == nil && s.err == nil {
		// Not the test's context: the cluster outlives it.
		s.cluster, s.err = Open(context.WithoutCancel(t.Context()), s.Options)
	}
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.cluster
}

// Run runs the tests, stops the cluster and returns the exit code.
func (s *Shared) Run(m *testing.M) int {
	code := m.Run()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cluster == nil {
		return code
	}
	if code != 0 {
		fmt.Fprintln(os.Stderr, s.cluster.Log())
	}
	if err := s.cluster.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return max(code, 1)
	}
	return code
}
