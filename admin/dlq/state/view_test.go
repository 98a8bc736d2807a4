package state

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"
)

// shown is everything that a view tells, so that two can be compared.
type shown struct {
	Recs  map[ID]Record
	Outs  map[string]Out
	Tally map[string]Tally
	Plans map[string]Plan
	Jobs  map[string]Job
}

func show(v *View) shown {
	s := shown{map[ID]Record{}, maps.Clone(v.outs), maps.Clone(v.ended), map[string]Plan{}, map[string]Job{}}
	for id, r := range v.Records {
		one := *r
		one.sole, one.follows = false, 0
		s.Recs[id] = one
	}
	for p := range v.Plans {
		s.Plans[p.Digest] = p.Plan
	}
	for j := range v.Jobs {
		s.Jobs[j.ID] = j.Job
	}
	return s
}

func fold(log []Entry) *View {
	v := NewView()
	for _, e := range log {
		v.Apply(e)
	}
	return v
}

// compact is what compaction leaves of a log: of entries below an offset the
// last one of each key, and all others. It drops tombstones that are last too,
// as it does after a while.
func compact(log []Entry, below int64, tombs bool) []Entry {
	last := map[string]int64{}
	for _, e := range log {
		if e.Offset < below {
			last[e.Key] = e.Offset
		}
	}
	var out []Entry
	for _, e := range log {
		if e.Offset >= below || last[e.Key] == e.Offset && (e.Value != nil || !tombs) {
			out = append(out, e)
		}
	}
	return out
}

// model is a world of daemons that see the log late, write what their view
// allows, and die at any moment.
type model struct {
	t    *testing.T
	rng  *rand.Rand
	log  []Entry
	now  time.Time
	ids  []ID
	sent map[ID]map[string]int // copies by record and replay id
	d    []*daemon
}

type daemon struct {
	*model
	name string
	view *View
	held map[ID]claim // claimed, and not settled yet
}

type claim struct {
	job string
	at  int64 // offset of the claim
}

func (m *model) write(key string, value any) int64 {
	e := Entry{Offset: int64(len(m.log)), Time: m.now, Key: key}
	if value != nil {
		b, err := json.Marshal(value)
		if err != nil {
			m.t.Fatal(err)
		}
		e.Value = b
	}
	m.log = append(m.log, e)
	return e.Offset
}

// catchUp reads on, up to n entries.
func (d *daemon) catchUp(n int) {
	for range n {
		if d.view.Next >= int64(len(d.log)) {
			return
		}
		d.view.Apply(d.log[d.view.Next])
	}
}

func (d *daemon) step() {
	id := d.ids[d.rng.IntN(len(d.ids))]
	r, known := d.view.Record(id)
	put := func(act Act, job, replay string) int64 {
		after := int64(-1)
		if known {
			after = r.Version
		}
		return d.write(id.Key(), Rec{V: 1, Act: act, After: after, Status: act.after(), Job: job, Replay: replay, Daemon: d.name})
	}
	switch d.rng.IntN(12) {
	case 0, 1, 2: // claim
		if _, free := d.view.Free(id); free {
			if _, mine := d.held[id]; mine {
				return
			}
			job := fmt.Sprintf("%s-%d", d.name, len(d.log))
			d.held[id] = claim{job, put(Claim, job, id.ReplayID(job))}
		}
	case 3, 4, 5: // send what is ours, once the view has reached the claim
		for id, c := range d.held {
			r, _ := d.view.Record(id)
			if d.view.Next <= c.at {
				continue
			}
			delete(d.held, id)
			if r.Status != Claimed || r.Job != c.job {
				return // another was first
			}
			if d.sent[id] == nil {
				d.sent[id] = map[string]int{}
			}
			d.sent[id][r.Replay]++
			if d.rng.IntN(6) == 0 {
				return // it dies: the record stays claimed
			}
			d.write(id.Key(), Rec{V: 1, Act: Sent, After: r.Version, Status: Replayed, Job: r.Job, Replay: r.Replay, Daemon: d.name})
			return
		}
	case 6: // give up a claim
		for id, c := range d.held {
			r, _ := d.view.Record(id)
			if d.view.Next > c.at {
				delete(d.held, id)
				if r.Status == Claimed && r.Job == c.job {
					d.write(id.Key(), Rec{V: 1, Act: Release, After: r.Version, Status: New, Job: r.Job, Replay: r.Replay})
				}
			}
			return
		}
	case 7, 8, 9: // a person
		act := []Act{Resolve, Discard, Restore}[d.rng.IntN(3)]
		if known || act != Restore {
			from := New
			if known {
				from = r.Status
			}
			if Legal(from, act) && from != Replayed && from != Uncertain {
				put(act, "", "")
			}
		}
	case 10: // the engine tells how a copy ended
		for id, copies := range d.sent {
			for replay := range copies {
				d.write("out/"+replay, Out{Version: 1, Status: []string{string(Succeeded), string(FailedAgain)}[d.rng.IntN(2)], Again: &Again{Partition: id.Partition, Offset: int64(len(d.log))}})
				return
			}
		}
	case 11:
		d.restate()
	}
}

func (d *daemon) restate() {
	for key, value := range d.view.Stale(d.now.Add(time.Hour)) {
		d.write(key, value)
	}
}

// Two daemons that see each other late, lose claims and die never send a record
// twice while nobody has freed it, and what compaction leaves tells the same as
// the whole log.
func TestViewAgainstModel(t *testing.T) {
	for seed := range uint64(300) {
		m := &model{t: t, rng: rand.New(rand.NewPCG(seed, 1)), now: time.UnixMilli(1e12), sent: map[ID]map[string]int{}}
		for i := range 4 {
			m.ids = append(m.ids, ID{int32(i % 2), int64(i), Identity([16]byte{1}, fmt.Sprint("r", i), 5)})
		}
		for _, name := range []string{"a", "b"} {
			m.d = append(m.d, &daemon{model: m, name: name, view: NewView(), held: map[ID]claim{}})
		}
		for range 150 {
			m.now = m.now.Add(time.Second)
			d := m.d[m.rng.IntN(2)]
			d.catchUp(m.rng.IntN(4))
			d.step()
		}
		// Everybody reads everything, and the losers that stand last are
		// followed by what is true.
		for range 3 {
			m.d[0].catchUp(len(m.log))
			m.d[0].restate()
		}
		m.d[0].catchUp(len(m.log))
		m.d[1].catchUp(len(m.log))
		want := show(m.d[0].view)
		if got := show(m.d[1].view); !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d: two views of one log differ:\n%+v\n%+v", seed, got, want)
		}
		for id, copies := range m.sent {
			for replay, n := range copies {
				if n > 1 {
					t.Fatalf("seed %d: %v was sent %d times as %s", seed, id, n, replay)
				}
			}
			if n, freed := len(copies), m.freed(id); n > 1+freed {
				t.Fatalf("seed %d: %v was sent %d times and freed %d times", seed, id, n, freed)
			}
		}
		// A record that is claimed still is followed by its job's next entry.
		open := m.open()
		drop(want, open)
		for below := int64(0); below <= int64(len(m.log)); below++ {
			for _, tombs := range []bool{false, true} {
				got := show(fold(compact(m.log, below, tombs)))
				if drop(got, open); !reflect.DeepEqual(got, want) {
					t.Fatalf("seed %d: compacted below %d:\n%+v\nwhole:\n%+v", seed, below, got, want)
				}
			}
		}
	}
}

// freed is how often a record became free again.
func (m *model) freed(id ID) int {
	v, n := NewView(), 0
	for _, e := range m.log {
		before, _ := v.Record(id)
		v.Apply(e)
		after, _ := v.Record(id)
		if after.Status == New && before.Status != New && before.Status != "" {
			n++
		}
	}
	return n
}

// open are the records that are claimed though a later entry of theirs did not
// count.
func (m *model) open() []ID {
	v := fold(m.log)
	var out []ID
	for _, id := range m.ids {
		if r, ok := v.recs[id]; ok && r.Status == Claimed {
			if _, stale := v.stale[id.Key()]; stale {
				out = append(out, id)
			}
		}
	}
	return out
}

func drop(s shown, ids []ID) {
	for _, id := range ids {
		delete(s.Recs, id)
	}
}

func rec(after int64, act Act, job string) Rec {
	return Rec{V: 1, Act: act, After: after, Status: act.after(), Job: job}
}

func logOf(t *testing.T, entries ...any) []Entry {
	t.Helper()
	var log []Entry
	for i := 0; i < len(entries); i += 2 {
		e := Entry{Offset: int64(i / 2), Time: time.UnixMilli(1e12 + int64(i/2)*1000), Key: entries[i].(string)}
		if entries[i+1] != nil {
			b, err := json.Marshal(entries[i+1])
			if err != nil {
				t.Fatal(err)
			}
			e.Value = b
		}
		log = append(log, e)
	}
	return log
}

func TestClaims(t *testing.T) {
	id := ID{0, 7, "aa"}
	k := id.Key()
	for _, c := range []struct {
		name string
		log  []any
		want Status
		job  string
	}{
		{"the first of two counts", []any{k, rec(-1, Claim, "a"), k, rec(-1, Claim, "b")}, Claimed, "a"},
		{"a claim of one that was resolved meanwhile is lost", []any{k, rec(-1, Resolve, ""), k, rec(-1, Claim, "a")}, Resolved, ""},
		{"a late claim does not undo a send", []any{k, rec(-1, Claim, "a"), k, rec(0, Sent, "a"), k, rec(-1, Claim, "b")}, Replayed, "a"},
		{"nobody sends what another has claimed", []any{k, rec(-1, Claim, "a"), k, rec(0, Sent, "b")}, Claimed, "a"},
		{"released is free", []any{k, rec(-1, Claim, "a"), k, rec(0, Release, "a"), k, rec(1, Claim, "b")}, Claimed, "b"},
		{"a person does not take a claimed one", []any{k, rec(-1, Claim, "a"), k, rec(0, Discard, "")}, Claimed, "a"},
		{"a tombstone forgets", []any{k, rec(-1, Resolve, ""), k, nil}, "", ""},
		{"garbage changes nothing", []any{k, rec(-1, Claim, "a"), k, 7, k, Rec{V: 1, Act: "explode", After: 0, Status: "new"}}, Claimed, "a"},
		{"an act and a status that do not fit change nothing", []any{k, rec(-1, Claim, "a"), k, Rec{V: 1, Act: Sent, After: 0, Status: New, Job: "a"}}, Claimed, "a"},
		{"a newer version's entry changes nothing", []any{k, rec(-1, Claim, "a"), k, Rec{V: 2, Act: Sent, After: 0, Status: Replayed, Job: "a"}}, Claimed, "a"},
	} {
		r, _ := fold(logOf(t, c.log...)).Record(id)
		if r.Status != c.want || r.Job != c.job {
			t.Errorf("%s: it is %q of job %q", c.name, r.Status, r.Job)
		}
	}
}

func TestOutcomes(t *testing.T) {
	id := ID{0, 7, "aa"}
	claim, sent := rec(-1, Claim, "a"), rec(0, Sent, "a")
	claim.Replay, sent.Replay = id.ReplayID("a"), id.ReplayID("a")
	out := func(job string, s Status) (string, Out) {
		return "out/" + id.ReplayID(job), Out{Version: 1, Status: string(s), At: 5}
	}
	keyA, okA := out("a", Succeeded)
	keyB, badB := out("b", FailedAgain)
	unsure := rec(0, Unsure, "a")
	unsure.Replay = id.ReplayID("a")
	release := rec(0, Release, "a")
	release.Replay = id.ReplayID("a")
	k := id.Key()
	for _, c := range []struct {
		name string
		log  []any
		want Status
	}{
		{"of its copy", []any{k, claim, k, sent, keyA, okA}, Succeeded},
		{"before it was recorded as sent", []any{k, claim, keyA, okA, k, sent}, Succeeded},
		{"of one that was never recorded", []any{k, claim, keyA, okA}, Succeeded},
		{"tells what was uncertain", []any{k, claim, k, unsure, keyA, okA}, Succeeded},
		{"of a frozen daemon's copy after the release", []any{k, claim, k, release, keyA, okA}, Succeeded},
		{"of another replay id", []any{k, claim, k, sent, keyB, badB}, Replayed},
		{"a person's word stands", []any{k, claim, k, sent, k, rec(1, Resolve, ""), keyA, okA}, Resolved},
		{"forgotten", []any{k, claim, k, sent, keyA, okA, keyA, nil}, Replayed},
	} {
		r, _ := fold(logOf(t, c.log...)).Record(id)
		if r.Status != c.want {
			t.Errorf("%s: it is %q", c.name, r.Status)
		}
	}
	v := fold(logOf(t, keyA, okA, keyB, badB, keyA, okA, "out/nonsense", okA))
	if v.Tally("a") != (Tally{1, 0}) || v.Tally("b") != (Tally{0, 1}) {
		t.Errorf("tallies %v %v", v.Tally("a"), v.Tally("b"))
	}
}

func TestLease(t *testing.T) {
	job := func(after int64, runner, writer string) Job {
		return Job{V: 1, After: after, Runner: runner, Writer: writer, Lease: 20_000}
	}
	ended := job(0, "a", "a")
	ended.Ended = true
	for _, c := range []struct {
		name string
		log  []any
		gap  time.Duration // before the last entry
		want string
	}{
		{"another within the lease", []any{"job/j", job(-1, "a", "a"), "job/j", job(0, "b", "b")}, 19 * time.Second, "a"},
		{"another after it", []any{"job/j", job(-1, "a", "a"), "job/j", job(0, "b", "b")}, 20 * time.Second, "b"},
		{"a renewal came first", []any{"job/j", job(-1, "a", "a"), "job/j", job(0, "a", "a"), "job/j", job(0, "b", "b")}, time.Minute, "a"},
		{"the first of two counts", []any{"job/j", job(-1, "", "a"), "job/j", job(0, "b", "b"), "job/j", job(0, "c", "c")}, 0, "b"},
		{"given up", []any{"job/j", job(-1, "a", "a"), "job/j", job(0, "", "a"), "job/j", job(1, "b", "b")}, 0, "b"},
		{"another's wish to cancel renews nothing", []any{"job/j", job(-1, "a", "a"), "job/j", job(0, "a", "c"), "job/j", job(1, "b", "b")}, 20 * time.Second, "b"},
		{"nothing follows the end", []any{"job/j", job(-1, "a", "a"), "job/j", ended, "job/j", job(1, "b", "b")}, time.Hour, "a"},
	} {
		log := logOf(t, c.log...)
		log[len(log)-1].Time = log[0].Time.Add(c.gap)
		j, _ := fold(log).Job("j")
		if j.Runner != c.want {
			t.Errorf("%s: %q runs it", c.name, j.Runner)
		}
	}
}

func TestAuditIsBounded(t *testing.T) {
	v := NewView()
	for i := range maxAudit + 10 {
		v.Apply(Entry{Offset: int64(i), Key: fmt.Sprintf("audit/%08d", i), Value: []byte("{}")})
	}
	if a := v.Audits(); len(a) != maxAudit || a[0].ID != "00000010" {
		t.Errorf("%d entries from %s on", len(a), a[0].ID)
	}
}

func TestPack(t *testing.T) {
	ids := []ID{{0, 0, "00112233aabbccdd"}, {0, 5, "ffffffffffffffff"}, {3, 1 << 40, "0000000000000000"}, {3, 1<<40 + 1, "01"}}
	b := Pack(ids)
	got, err := Unpack(b)
	if err != nil || !slices.Equal(got, ids) {
		t.Errorf("%v, %v", got, err)
	}
	for n := range len(b) {
		if got, err := Unpack(b[:n]); err == nil && len(got) >= len(ids) {
			t.Errorf("%d of %d bytes: %v", n, len(b), got)
		}
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add(Pack([]ID{{0, 0, "00112233aabbccdd"}, {7, 1 << 50, "ffffffffffffffff"}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		ids, err := Unpack(b)
		if err == nil && len(ids) > len(b) {
			t.Fatalf("%d ids of %d bytes", len(ids), len(b))
		}
	})
}

// Whatever the log holds, a view can be made of it.
func FuzzApply(f *testing.F) {
	f.Add("rec/0/1/aa", []byte(`{"v":1,"act":"claim","after":-1,"status":"claimed"}`), "job/x", []byte(`{"v":1}`))
	f.Add("out/j/0/1/aa", []byte(`{"v":1,"status":"succeeded"}`), "rec/0/1/aa", []byte(nil))
	f.Fuzz(func(t *testing.T, k1 string, v1 []byte, k2 string, v2 []byte) {
		v := fold([]Entry{{Offset: 0, Key: k1, Value: v1}, {Offset: 1, Key: k2, Value: v2}, {Offset: 2, Key: k1, Value: v2}})
		if v.Next != 3 {
			t.Fatalf("it stands at %d", v.Next)
		}
		for id, r := range v.Records {
			if r.Status == "" {
				t.Fatalf("%v has no status", id)
			}
		}
	})
}

func TestParseID(t *testing.T) {
	for text, ok := range map[string]bool{"0/1/aa": true, "0/1/": false, "0/1": false, "-1/1/aa": false, "0/01/aa": false, "x/1/aa": false, "": false, "4294967296/1/a": false} {
		if _, got := ParseID(text); got != ok {
			t.Errorf("%q: %v", text, got)
		}
	}
	id := ID{3, 9, "ab"}
	if job, got, ok := ParseReplayID(id.ReplayID("j1")); !ok || job != "j1" || got != id {
		t.Errorf("%q %v %v", job, got, ok)
	}
}

// The identity must never change: every entry of every state topic has it.
func TestIdentityIsForEver(t *testing.T) {
	if got := Identity([16]byte{1, 2, 3}, "orders/3/42@1699999999999", 1700000000001); got != "20d98e57f622ff1d" {
		t.Errorf("got %s", got)
	}
}

func BenchmarkApply(b *testing.B) {
	var log []Entry
	for i := range 100_000 {
		id := ID{int32(i % 12), int64(i), Identity([16]byte{1}, fmt.Sprint("r", i), 5)}
		r := Rec{V: 1, Act: Sent, After: 0, Status: Replayed, At: 1e12, Life: "0102030405060708090a0b0c0d0e0f10", Came: 1e12, Print: "0011223344556677", Daemon: "d", By: "uid 1000 (ada)", Job: "j", Replay: id.ReplayID("j"), Target: "orders.replay", Offset: int64(i)}
		body, _ := json.Marshal(r)
		log = append(log, Entry{Offset: int64(i), Key: id.Key(), Value: body})
	}
	b.ReportAllocs()
	for b.Loop() {
		fold(log)
	}
}
