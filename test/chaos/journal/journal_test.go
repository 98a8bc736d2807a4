package journal_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/kconsume/kconsume/test/chaos/journal"
)

func TestParseReadsWhatIsWritten(t *testing.T) {
	var out bytes.Buffer
	w := journal.NewWriter(&out)
	want := journal.Begin{Partition: 3, Offset: 77, Attempt: 2, Stage: "retry.2s", Number: 9, Written: 55}
	for range 2 {
		if _, err := w.Begin(want); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.End(2, journal.Failed); err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimSuffix(out.Bytes(), []byte{'\n'}), []byte{'\n'})
	if len(lines) != 3 {
		t.Fatalf("%d lines, want 3", len(lines))
	}
	b, e, err := journal.Parse(lines[1])
	if err != nil || e != nil || b.At == 0 {
		t.Fatal(b, e, err)
	}
	want.Call, want.At = 2, b.At
	if *b != want {
		t.Errorf("got %+v, want %+v", *b, want)
	}
	b, e, err = journal.Parse(lines[2])
	if err != nil || b != nil || e.Call != 2 || e.Outcome != journal.Failed || e.At == 0 {
		t.Error(b, e, err)
	}
}

func TestParseRefusesWhatIsNoLine(t *testing.T) {
	for _, bad := range []string{"", "B", "B 1 2 3 4 5 main 6", "E 1 2 dd", "E 1 x d", "X 1 2 d", "B 1 2 3 4 5 main 6 x"} {
		if b, e, err := journal.Parse([]byte(bad)); err == nil {
			t.Errorf("%q is taken for %v %v", bad, b, e)
		}
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func TestLostLineIsAnError(t *testing.T) {
	w := journal.NewWriter(fullDisk{})
	if _, err := w.Begin(journal.Begin{}); err == nil {
		t.Error("a begin that was not written is no error")
	}
	if err := w.End(1, journal.Done); err == nil {
		t.Error("an end that was not written is no error")
	}
}
