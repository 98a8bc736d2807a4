package history

import "testing"

func FuzzParseReplayID(f *testing.F) {
	for _, s := range []string{"01JX/3/42/ab-c", "", "a/b/c/d", "a/1/2", "a/01/2/b", "a/-1/2/b", "a/1/9223372036854775808/b", "a/2147483648/1/b", "a/1/2/b/c", "ä/1/2/b", "/1/2/b", "a/+1/2/b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, ok := ParseReplayID(s)
		if ok && id.String() != s {
			t.Errorf("%q is read as %q", s, id)
		}
		if ok && (id.Partition < 0 || id.Offset < 0 || len(s) > 2*maxReplayWord+40) {
			t.Errorf("%q is believed: %+v", s, id)
		}
	})
}

func TestParseReplayID(t *testing.T) {
	want := ReplayID{Job: "01JXZ", Partition: 3, Offset: 1 << 40, Identity: "a_b-C9"}
	if got, ok := ParseReplayID(want.String()); !ok || got != want {
		t.Errorf("read back %+v, %v", got, ok)
	}
	for _, s := range []string{"", "r1", "a/1/2", "a/1/2/", "a/01/2/b", "a/ 1/2/b", "a/1/2/b\n", "a/1/2/b/c", "a/4294967296/2/b"} {
		if id, ok := ParseReplayID(s); ok {
			t.Errorf("%q is believed: %+v", s, id)
		}
	}
}
