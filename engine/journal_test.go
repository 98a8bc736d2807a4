package engine_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/kconsume/kconsume/engine"
	"github.com/kconsume/kconsume/plugin"
)

// lives runs an engine again and again over one state file. A record "kill" ends
// a life: the file is left as it is at that moment, as a killed process leaves it.
func lives(w *world, c engine.Config, most int) (deaths int, seen []string) {
	w.t.Helper()
	var mu sync.Mutex
	for deaths = 0; deaths < most; {
		var left []byte
		died := make(chan struct{})
		var once sync.Once
		c.Handler = plugin.HandlerFunc(func(ctx context.Context, m *plugin.Message) error {
			if string(m.Value) == "kill" {
				once.Do(func() {
					left, _ = os.ReadFile(c.StateFile)
					close(died)
				})
				<-ctx.Done()
				return ctx.Err()
			}
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, string(m.Value))
			return nil
		})
		r := w.start(c)
		select {
		case <-died:
			r.end()
			if err := os.WriteFile(c.StateFile, left, 0o600); err != nil {
				w.t.Fatal(err)
			}
			deaths++
		case <-time.After(time.Minute):
			r.end()
			return deaths, seen
		}
	}
	return deaths, seen
}

func TestRecordThatTakesTheProcessDown(t *testing.T) {
	for name, records := range map[string][]string{
		"in the middle": {"a", "b", "kill", "c", "d"},
		"the first":     {"kill", "a", "b", "c", "d"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 1, []string{"t"}, func(w *world) {
				w.produce(values("t", records...)...)
				c := w.config(nil)
				c.StateFile = filepath.Join(w.t.TempDir(), "state")
				c.DrainTimeout = time.Second
				deaths, seen := lives(w, c, 20)
				if deaths > 5 {
					t.Errorf("%d deaths, want at most 5", deaths)
				}
				handled := map[string]bool{}
				for _, v := range seen {
					handled[v] = true
				}
				for _, v := range []string{"a", "b", "c", "d"} {
					if !handled[v] {
						t.Errorf("%s was never handled", v)
					}
				}
				dead := w.read("t.dlq")
				if len(dead) != 1 || string(dead[0].Value) != "kill" || headersOf(dead[0])["X-Error-Class"] != "handler_crash" {
					t.Fatalf("the DLQ has %d records", len(dead))
				}
				if lag := w.lag("g", "t"); lag != 0 {
					t.Errorf("lag %d", lag)
				}
			})
		})
	}
}

// A handler that dies on any record is to blame itself: no record goes to the DLQ.
func TestNoBlameWithoutProof(t *testing.T) {
	inWorld(t, 1, []string{"t"}, func(w *world) {
		w.produce(values("t", "kill", "kill", "kill")...)
		c := w.config(nil)
		c.StateFile = filepath.Join(w.t.TempDir(), "state")
		c.DrainTimeout = time.Second
		deaths, _ := lives(w, c, 12)
		if deaths != 12 {
			t.Errorf("%d deaths, then it went on", deaths)
		}
		if dead := w.read("t.dlq"); len(dead) != 0 {
			t.Errorf("%d records were blamed without proof", len(dead))
		}
	})
}

// Two engines must not write one journal.
func TestJournalHasOneOwner(t *testing.T) {
	inWorld(t, 1, []string{"t"}, func(w *world) {
		c := w.config(probe(&calls{}))
		c.StateFile = filepath.Join(w.t.TempDir(), "state")
		first := w.start(c)
		time.Sleep(5 * time.Second)
		second := w.start(c)
		if err := <-second.done; engine.ClassOf(err) != engine.ErrConfig {
			t.Errorf("got %v, want an error of class config", err)
		}
		second.stop()
		first.end()
		again := w.start(c)
		time.Sleep(time.Second)
		again.end()
	})
}

// After a clean end nothing goes one at a time; after an unclean one the first
// records of each partition do.
func TestCareAfterAnUncleanEnd(t *testing.T) {
	inWorld(t, 1, []string{"t"}, func(w *world) {
		c := w.config(nil)
		c.StateFile = filepath.Join(w.t.TempDir(), "state")
		c.Concurrency = 8
		atOnce := func() int {
			var k calls
			for range 4 {
				w.produce(values("t", "sleep 100", "sleep 100", "sleep 100", "sleep 100")...)
			}
			c.Handler = probe(&k)
			r := w.start(c)
			time.Sleep(10 * time.Second)
			r.end()
			most := 0
			all := k.all()
			for _, one := range all[:min(7, len(all))] {
				n := 0
				for _, other := range all {
					if !other.at.After(one.at) && other.release.After(one.at) {
						n++
					}
				}
				most = max(most, n)
			}
			if len(all) != 16 {
				t.Errorf("%d deliveries, want 16", len(all))
			}
			return most
		}
		if n := atOnce(); n < 2 {
			t.Errorf("first run: %d at once", n)
		}
		if n := atOnce(); n < 2 {
			t.Errorf("after a clean end: %d at once", n)
		}
		if err := os.WriteFile(c.StateFile, []byte("begin \"t/0/99@1\"\nbegin \"cut o"), 0o600); err != nil {
			t.Fatal(err)
		}
		if n := atOnce(); n != 1 {
			t.Errorf("after an unclean end: %d at once among the first 7", n)
		}
	})
}

// doubter is a deliverer that answers for a record "kill" only when it has
// answered for another one since, as a host does whose handler dies of it.
type doubter struct {
	answers chan plugin.Answers
	mu      sync.Mutex
	held    []uint64
}

func (d *doubter) Deliver(ds []plugin.Delivery) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := plugin.Answers{Handler: "h@1"}
	for i := range ds {
		if string(ds[i].Message.Value) == "kill" {
			d.held = append(d.held, ds[i].Handle)
			continue
		}
		a.Acked = append(a.Acked, ds[i].Handle)
	}
	if len(a.Acked) == 0 {
		return
	}
	for _, h := range d.held {
		a.Verdicts = append(a.Verdicts, plugin.Answer{Handle: h, Verdict: plugin.Verdict{Class: plugin.ClassPermanent, Reason: plugin.ReasonHandlerCrash}})
	}
	d.held = nil
	d.answers <- a
}

func (d *doubter) Cancel([]uint64) {}

func (d *doubter) Answers() <-chan plugin.Answers { return d.answers }

// A record that goes alone after an unclean end, and takes the handler's process
// down, is proven to do so by others of the only partition there is.
func TestCareLeavesRoomForProof(t *testing.T) {
	inWorld(t, 1, []string{"t"}, func(w *world) {
		c := w.config(nil)
		c.StateFile = filepath.Join(w.t.TempDir(), "state")
		c.Deliverer = &doubter{answers: make(chan plugin.Answers, 1<<10)}
		if err := os.WriteFile(c.StateFile, []byte("begin \"t/0/99@1\"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		w.produce(values("t", "a", "kill", "b", "kill", "c")...)
		r := w.start(c)
		defer r.end()
		time.Sleep(5 * time.Minute)
		if lag := w.lag("g", "t"); lag != 0 {
			t.Errorf("lag %d after five minutes", lag)
		}
		if dead := w.read("t.dlq"); len(dead) != 2 {
			t.Errorf("%d dead letters, want 2", len(dead))
		}
	})
}
