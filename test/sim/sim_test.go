package sim

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// play runs one seed in a bubble and saves its history if it fails.
func play(t *testing.T, seed uint64) *Result {
	t.Helper()
	var res *Result
	synctest.Test(t, func(t *testing.T) {
		var err error
		if res, err = Run(seed); err != nil {
			t.Fatal(err)
		}
	})
	return res
}

func TestOne(t *testing.T) {
	seed, _ := strconv.ParseUint(os.Getenv("SEED"), 10, 64)
	begin := time.Now()
	res := play(t, seed)
	t.Logf("%+v in %v", res.Stats, time.Since(begin))
	for _, v := range res.Violations {
		t.Error(v)
	}
	f, _ := os.Create(filepath.Join(os.TempDir(), fmt.Sprintf("seed-%d.log", seed)))
	defer f.Close()
	res.WriteHistory(f)
}

var _ = bufio.NewReader
var _ = json.Marshal
var _ = reflect.DeepEqual
