package task_test

import (
	"testing"

	"github.com/kconsume/kconsume/test/chaos/task"
)

func TestParseReadsWhatAppendWrote(t *testing.T) {
	want := task.Task{Partition: 7, Number: 123456, Written: 1795983655596112541, Do: task.Twice}
	for _, size := range []int{0, 200} {
		value := want.Append(nil, size)
		if len(value) < size {
			t.Errorf("the value has %d bytes, want %d", len(value), size)
		}
		if got, err := task.Parse(value); err != nil || got != want {
			t.Errorf("got %+v, %v", got, err)
		}
	}
	for _, bad := range []string{"", "1 2 3", "1 2 3 ok", "a 2 3 ok ", "1 2 99999999999999999999 ok "} {
		if got, err := task.Parse([]byte(bad)); err == nil {
			t.Errorf("%q is taken for %+v", bad, got)
		}
	}
}

// The mixture has every action, about as often as it says.
func TestMixed(t *testing.T) {
	const n = 100_000
	count := map[task.Action]int{}
	for i := range int64(n) {
		count[task.Mixed(int32(i%12), i/12)]++
	}
	for a, perMille := range map[task.Action]int{
		task.Panic: 1, task.Permanent: 1, task.Never: 1, task.Once: 40, task.Twice: 10, task.Slow: 10, task.Work: 137, task.OK: 800,
	} {
		want := n / 1000 * perMille
		if got := count[a]; got < want/2 || got > want*2 {
			t.Errorf("%s: %d of %d, want about %d", a, got, n, want)
		}
	}
}

func TestFate(t *testing.T) {
	for _, c := range []struct {
		do    task.Action
		fails [3]bool
		dead  string
	}{
		{task.OK, [3]bool{}, ""},
		{task.Once, [3]bool{true}, ""},
		{task.Twice, [3]bool{true, true}, ""},
		{task.Never, [3]bool{true, true, true}, "transient"},
		{task.Permanent, [3]bool{true, true, true}, "permanent"},
		{task.Panic, [3]bool{true, true, true}, "panic"},
	} {
		for i, want := range c.fails {
			if c.do.Fails(i+1) != want {
				t.Errorf("%s: delivery %d fails: %v", c.do, i+1, !want)
			}
		}
		if c.do.Dead() != c.dead {
			t.Errorf("%s ends as %q, want %q", c.do, c.do.Dead(), c.dead)
		}
	}
}
