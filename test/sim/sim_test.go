package sim

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// maxMemory is by how many MiB a seed may have the process grow. All of them need
// less than a fifth of it.
const maxMemory = 512

// memory is what the process has taken from the system, in MiB.
func memory() int {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.Sys >> 20)
}

// play runs one seed in a bubble. Where it fails, or keep says so, its history is
// saved in dir.
func play(t *testing.T, seed uint64, dir string, keep bool) (res *Result) {
	t.Helper()
	before := memory()
	synctest.Test(t, func(t *testing.T) {
		var err error
		if res, err = Run(seed); err != nil {
			t.Fatal(err)
		}
	})
	if n := memory() - before; n > maxMemory {
		res.Violations = append(res.Violations, fmt.Sprintf("it took %d MiB of memory", n))
	}
	if len(res.Violations) == 0 && !keep {
		return res
	}
	res.History = filepath.Join(dir, fmt.Sprintf("seed-%d.log", seed))
	f, err := os.Create(res.History)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := res.WriteHistory(f); err != nil {
		t.Fatal(err)
	}
	return res
}

// What the runner sets for its workers.
const (
	workerDir  = "KCONSUME_SIM_DIR"  // where histories go; unset = no worker
	workerKeep = "KCONSUME_SIM_KEEP" // "1": also those of seeds that pass
)

// TestWorker is the runner's: it plays the seeds that come on stdin, one a line,
// and tells each result on stdout.
func TestWorker(t *testing.T) {
	dir := os.Getenv(workerDir)
	if dir == "" {
		t.Skip("for the runner")
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		seed, err := strconv.ParseUint(lines.Text(), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(play(t, seed, dir, os.Getenv(workerKeep) == "1"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("result %s\n", b)
	}
}

// shareSeeds is how many seeds are played on each change; the runner plays more.
const shareSeeds = 20

// TestShare plays seeds that were never played before.
func TestShare(t *testing.T) {
	first := uint64(time.Now().UnixMilli())
	t.Logf("seeds %d to %d", first, first+shareSeeds-1)
	for seed := first; seed < first+shareSeeds; seed++ {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			res := play(t, seed, os.TempDir(), false)
			for _, v := range res.Violations {
				t.Error(v)
			}
			if t.Failed() {
				t.Logf("replay it with make sim SEEDS=1 FIRST_SEED=%d; this time's history: %s", seed, res.History)
			}
		})
	}
}

// A seed's schedule is always the same, and never a thin one.
func TestSchedule(t *testing.T) {
	special := map[string]int{}
	for seed := range uint64(100) {
		s := NewSchedule(seed)
		if !reflect.DeepEqual(s, NewSchedule(seed)) {
			t.Fatalf("seed %d: two schedules", seed)
		}
		if n := s.Records(); n < minRecords {
			t.Errorf("seed %d: %d records", seed, n)
		}
		if n := s.Crashes(); n < minCrashes {
			t.Errorf("seed %d: %d crashes", seed, n)
		}
		if n := len(s.Faults); n < minFaults {
			t.Errorf("seed %d: %d faults", seed, n)
		}
		drawn := map[Kind]bool{}
		for _, f := range s.Faults {
			drawn[f.Kind] = true
		}
		for _, k := range slices.Concat(wireKinds, brokerKinds, errorKinds) {
			if !drawn[k] {
				t.Errorf("seed %d: no %s", seed, k)
			}
		}
		switch {
		case s.Growth.At > 0:
			special["grows among faults"]++
		case s.Growth.To > 0:
			special["grows after them"]++
		case s.Anew.Topic == mainTopic && s.Anew.Stopped:
			special["main topic made anew, nobody there"]++
		case s.Anew.Topic == mainTopic:
			special["main topic made anew"]++
		case s.Anew.Topic != "":
			special["tier made anew"]++
		default:
			special["nothing special"]++
		}
	}
	if len(special) != 6 {
		t.Errorf("special histories: %v", special)
	}
}
