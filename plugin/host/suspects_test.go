package host

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// crashesPerKiller is what it may take to find one among 500: two before the
// search, eight halvings, two alone that count, and before each of these one of
// a process that was sent others before.
const crashesPerKiller = 2 + 8 + 2 + 2

// modelHost gives deliveries to processes as a host would, and lets them die.
type modelHost struct {
	*rand.Rand
	t        *testing.T
	s        suspects
	waiting  []uint64
	hands    map[int][]uint64 // by process
	taken    map[int]int      // by process, answered ones included
	most     int              // that a process takes
	launched int
	next     uint64
	kills    func(p int, handle uint64) bool // handling handle kills the process

	answered map[uint64]bool
	guilty   map[uint64]bool
	crashes  int
}

func newModelHost(t *testing.T, seed uint64, procs, records int) *modelHost {
	r := rand.New(rand.NewPCG(seed, uint64(procs)))
	m := &modelHost{Rand: r, t: t, hands: map[int][]uint64{}, taken: map[int]int{}, most: 1 + r.IntN(records), answered: map[uint64]bool{}, guilty: map[uint64]bool{}}
	m.arrive(records)
	for range procs {
		m.launch()
	}
	return m
}

func (m *modelHost) arrive(n int) {
	for range n {
		m.next++
		m.waiting = append(m.waiting, m.next)
	}
}

func (m *modelHost) launch() { m.launched++; m.hands[m.launched] = nil }

func (m *modelHost) fresh(p int) bool {
	if m.taken[p] == 0 {
		return true
	}
	for other := range m.hands {
		if m.taken[other] == 0 {
			return false
		}
	}
	return true
}

// take does what Host.fill does.
func (m *modelHost) take(p int) {
	var may func(uint64) bool
	switch m.s.allow(p, len(m.hands[p]), m.fresh(p)) {
	case allowNothing:
		return
	case allowAll:
		may = func(uint64) bool { return true }
	case allowFree:
		may = m.s.free
	case allowTrial:
		may = m.s.tries
	case allowProbe:
		if len(m.waiting) == 0 {
			return
		}
		m.s.probe(slices.MinFunc(m.waiting, func(a, b uint64) int { return m.s.rank(a) - m.s.rank(b) }))
		may = m.s.tries
	}
	m.waiting = slices.DeleteFunc(m.waiting, func(h uint64) bool {
		ok := may(h) && len(m.hands[p]) < m.most
		if ok {
			m.hands[p] = append(m.hands[p], h)
			m.taken[p]++
		}
		return ok
	})
}

// step lets a random process take, answer or die.
func (m *modelHost) step() {
	p := slices.Sorted(maps.Keys(m.hands))[m.IntN(len(m.hands))]
	hand := m.hands[p]
	if len(hand) == 0 || m.IntN(4) == 0 {
		m.take(p)
		return
	}
	i := m.IntN(len(hand))
	if m.kills(p, hand[i]) {
		m.die(p)
		return
	}
	m.answer(p, i)
}

func (m *modelHost) answer(p, i int) {
	handle := m.hands[p][i]
	m.hands[p] = slices.Delete(m.hands[p], i, i+1)
	if m.answered[handle] || m.guilty[handle] {
		m.t.Fatalf("%d is handled once more", handle)
	}
	m.answered[handle] = true
	if m.s.quiet() {
		m.s.answers++
		return
	}
	for _, c := range m.s.answered(handle) {
		if !slices.Contains(m.waiting, c.handle) || m.guilty[c.handle] {
			m.t.Fatalf("%d is blamed, and does not wait", c.handle)
		}
		m.guilty[c.handle] = true
		m.waiting = slices.DeleteFunc(m.waiting, func(h uint64) bool { return h == c.handle })
	}
}

func (m *modelHost) die(p int) {
	m.crashes++
	had := slices.Clone(m.hands[p])
	m.s.died(death{who: p, had: had, alone: true, first: m.taken[p] == len(had), why: "killed"})
	m.end(p)
}

// run goes on until done, and fails when that takes too long.
func (m *modelHost) run(done func() bool) {
	m.t.Helper()
	for n := 0; !done(); n++ {
		if n == 200_000 {
			m.t.Fatalf("no end: %d crashes, %d wait, %d answered, %d blamed, hands %v, %+v", m.crashes, len(m.waiting), len(m.answered), len(m.guilty), m.hands, m.s)
		}
		m.step()
	}
}

func (m *modelHost) idle() bool {
	for _, hand := range m.hands {
		if len(hand) > 0 {
			return false
		}
	}
	return len(m.waiting) == 0
}

func TestSuspectsFindEachKiller(t *testing.T) {
	for seed := range uint64(200) {
		procs, killers := 1+int(seed%3), map[uint64]bool{}
		m := newModelHost(t, seed, procs, 500)
		for range 1 + m.IntN(6) {
			killers[1+m.Uint64N(500)] = true
		}
		m.kills = func(_ int, handle uint64) bool { return killers[handle] }
		m.run(func() bool {
			if len(m.waiting) <= len(killers) {
				m.arrive(1) // there must be something to prove a guilt with
			}
			return len(m.guilty) == len(killers)
		})
		if !maps.Equal(m.guilty, killers) {
			t.Errorf("seed %d: blamed %v, want %v", seed, m.guilty, killers)
		}
		if m.crashes > crashesPerKiller*len(killers) {
			t.Errorf("seed %d: %d crashes for %d killers", seed, m.crashes, len(killers))
		}
		m.run(m.idle)
		if len(m.s.records)+len(m.s.hunts)+len(m.s.aside) > 0 || !m.s.quiet() || m.s.pending() {
			t.Errorf("seed %d: left %+v", seed, m.s)
		}
	}
}

func TestSuspectsBlameNobody(t *testing.T) {
	for _, c := range []struct {
		name string
		// kills is made anew for each run. Once it is over, all are answered.
		kills   func(m *modelHost) (kills func(p int, handle uint64) bool, over func() bool)
		failing bool // it ends failing
	}{
		{"a handler that always dies", func(m *modelHost) (func(int, uint64) bool, func() bool) {
			return func(int, uint64) bool { return true }, func() bool { return m.crashes == 200 }
		}, true},
		{"an outage", func(m *modelHost) (func(int, uint64) bool, func() bool) {
			from, n := m.IntN(400), m.IntN(60)
			return func(int, uint64) bool { return len(m.answered) >= from && m.crashes < n }, m.idle
		}, false},
		{"outages that come and go", func(m *modelHost) (func(int, uint64) bool, func() bool) {
			answers, crashes := 0, 0 // until which it works, and then does not
			return func(int, uint64) bool {
				if m.crashes >= crashes && len(m.answered) >= answers {
					answers, crashes = len(m.answered)+5+m.IntN(40), m.crashes+1+m.IntN(20)
				}
				return len(m.answered) >= answers
			}, m.idle
		}, false},
		{"a process that dies of its nth delivery", func(m *modelHost) (func(int, uint64) bool, func() bool) {
			n := 2 + m.IntN(4)
			return func(p int, _ uint64) bool { return m.taken[p]-len(m.hands[p]) == n-1 }, m.idle
		}, false},
		{"too many at once", func(m *modelHost) (func(int, uint64) bool, func() bool) {
			most := 2 + m.IntN(100)
			return func(p int, _ uint64) bool { return len(m.hands[p]) > most }, m.idle
		}, false},
		{"two only together", func(m *modelHost) (func(int, uint64) bool, func() bool) {
			a, b := 1+m.Uint64N(250), 251+m.Uint64N(250)
			return func(p int, h uint64) bool {
				return slices.Contains(m.hands[p], a) && slices.Contains(m.hands[p], b) && (h == a || h == b)
			}, m.idle
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(60) {
				m := newModelHost(t, seed, 1+int(seed%3), 500)
				var over func() bool
				m.kills, over = c.kills(m)
				m.run(over)
				if len(m.guilty) > 0 || m.s.failing != c.failing {
					t.Fatalf("seed %d: blamed %v after %d crashes, failing %v", seed, m.guilty, m.crashes, m.s.failing)
				}
				m.kills = func(int, uint64) bool { return false }
				m.run(m.idle)
				if len(m.answered) != 500 || !m.s.quiet() || m.s.pending() {
					t.Fatalf("seed %d: %d answered, left %+v", seed, len(m.answered), m.s)
				}
			}
		})
	}
}

// TestSuspectsAmongOtherTroubles: whatever else ends processes or takes
// deliveries away, innocent ones are not blamed, and no search goes on for ever.
func TestSuspectsAmongOtherTroubles(t *testing.T) {
	for seed := range uint64(200) {
		m := newModelHost(t, seed, 1+int(seed%3), 300)
		killers := map[uint64]bool{}
		for range m.IntN(4) {
			killers[1+m.Uint64N(300)] = true
		}
		m.kills = func(_ int, handle uint64) bool { return killers[handle] }
		for range 3000 {
			m.step()
			p := m.launched
			switch m.IntN(100) {
			case 0: // cancelled
				if len(m.waiting) > 0 {
					m.forget(m.waiting[m.IntN(len(m.waiting))])
				}
			case 1: // told to end
				if _, runs := m.hands[p]; runs {
					m.s.recalled(p)
					m.end(p)
				}
			case 2: // dies while a call is late
				if hand, runs := m.hands[p]; runs {
					m.s.died(death{who: p, had: hand, why: "killed"})
					m.end(p)
				}
			case 3: // an answer comes late
				if hand := m.hands[p]; len(hand) > 0 {
					m.forget(hand[0])
				}
			case 4:
				m.arrive(1)
			case 5:
				m.s.calm()
			}
		}
		for handle := range m.guilty {
			if !killers[handle] {
				t.Fatalf("seed %d: %d is blamed, the killers are %v", seed, handle, killers)
			}
		}
		clear(killers)
		m.run(m.idle)
		if !m.s.quiet() || m.s.pending() || len(m.s.aside) > 0 {
			t.Fatalf("seed %d: left %+v", seed, m.s)
		}
	}
}

// forget takes away a delivery that is answered otherwise.
func (m *modelHost) forget(handle uint64) {
	m.s.gone(handle)
	is := func(h uint64) bool { return h == handle }
	m.waiting = slices.DeleteFunc(m.waiting, is)
	for p, hand := range m.hands {
		m.hands[p] = slices.DeleteFunc(hand, is)
	}
}

// end puts another process in the place of p.
func (m *modelHost) end(p int) {
	m.waiting = append(slices.Clone(m.hands[p]), m.waiting...)
	delete(m.hands, p)
	m.launch()
}
