package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/kconsume/kconsume/engine"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	group      = "g"
	mainTopic  = "t"
	dlqTopic   = "t.dlq"
	partitions = 4
	slots      = 4 // members at most; the last one comes and goes

	handlerTimeout = 3 * time.Second
	sessionTimeout = 6 * time.Second
	commitInterval = time.Second

	faultsFrom = 5 * time.Second // the members are there by then
	faultsFor  = 100 * time.Second
	lastInput  = faultsFrom + faultsFor - 5*time.Second
)

// tiers are the delays of the retry topics, the last one the longest.
var tiers = [...]time.Duration{2 * time.Second, 6 * time.Second}

// shortDrain is a DrainTimeout by which a stop cuts calls off, and what they emit.
const shortDrain = time.Second

// Schedule is everything that a seed decides.
type Schedule struct {
	Seed        uint64
	Order       engine.Order
	MaxAttempts int
	Concurrency int
	Drain       time.Duration // DrainTimeout

	Inputs []Batch // by At
	Faults []Fault // by At
	Slots  [slots][]Turn
	Growth Growth
	Anew   Anew
	Quiet  []Batch // for the time after the faults
}

// Batch is produced at once, to one partition.
type Batch struct {
	At        time.Duration
	Partition int32
	Aborted   bool // in a transaction that is aborted
	Txn       bool // in a transaction
	Records   []Input
}

// Input is a record to be produced, and what handlers make of it.
type Input struct {
	Key, Value []byte
	Headers    []kgo.RecordHeader
	Script     []Step // by attempt; the last one repeats
	Emits      int    // records that it emits where it is acknowledged
	Chaff      bool   // compaction may take it
}

// Turn is one life of a slot's member.
type Turn struct {
	Start time.Duration
	End   time.Duration // 0 = it lives on
	Crash bool          // else it is stopped
}

// NewSchedule draws a seed's schedule. It is a pure function.
func NewSchedule(seed uint64) *Schedule {
	stream := uint64(0)
	draw := func() *rand.Rand { // parts do not shift one another's numbers
		stream++
		return rand.New(rand.NewPCG(seed, stream))
	}
	r := draw()
	s := &Schedule{Seed: seed, Order: engine.OrderKey, MaxAttempts: 3, Concurrency: 8, Drain: 4 * time.Second}
	switch r.IntN(10) {
	case 0:
		s.Order = engine.OrderPartition
	case 1:
		s.Order = engine.OrderNone
	}
	if r.IntN(4) == 0 {
		s.MaxAttempts = 5 // the last tier repeats
	}
	if r.IntN(4) == 0 {
		s.Drain = shortDrain
	}
	s.Slots = drawSlots(draw())
	s.Faults = drawFaults(draw())
	s.Growth, s.Anew = drawSpecial(draw())
	s.Inputs = drawInputs(draw(), s.Order == engine.OrderPartition, s.Growth)
	s.Quiet = drawQuiet(draw())
	return s
}

// Crashes is how many crashes there are in a schedule.
func (s *Schedule) Crashes() (n int) {
	for _, turns := range s.Slots {
		for _, t := range turns {
			if t.Crash {
				n++
			}
		}
	}
	return n
}

// Records is how many records there are in a schedule, aborted ones left out.
func (s *Schedule) Records() (n int) {
	for _, b := range slices.Concat(s.Inputs, s.Growth.Later, s.Anew.Before, s.Anew.At, s.Anew.Later, s.Quiet) {
		if !b.Aborted {
			n += len(b.Records)
		}
	}
	return n
}

// drawSlots lays out the members' lives. Each of the first slots has three
// crashes at least and mostly a stop, and a last life without an end; one more
// member comes and goes.
func drawSlots(r *rand.Rand) (all [slots][]Turn) {
	const turns = 4
	for i := range slots - 1 {
		at, stop := time.Duration(0), r.IntN(turns+1)
		for k := range turns {
			end := max(at, faultsFrom) + between(r, 8*time.Second, 18*time.Second)
			all[i] = append(all[i], Turn{Start: at, End: end, Crash: k != stop})
			at = end + between(r, 300*time.Millisecond, 8*time.Second)
		}
		all[i] = append(all[i], Turn{Start: at})
	}
	at := between(r, 8*time.Second, 20*time.Second)
	for at < faultsFrom+faultsFor-20*time.Second {
		t := Turn{Start: at, End: at + between(r, 5*time.Second, 15*time.Second), Crash: r.IntN(4) == 0}
		all[slots-1] = append(all[slots-1], t)
		at = t.End + between(r, 8*time.Second, 25*time.Second)
	}
	return all
}

// drawInputs draws a trickle of records with some bursts and some transactions.
func drawInputs(r *rand.Rand, brisk bool, g Growth) (bs []Batch) {
	for at := 500 * time.Millisecond; at < lastInput; at += between(r, 200*time.Millisecond, 800*time.Millisecond) {
		b := Batch{At: at, Partition: int32(r.IntN(partitions))}
		if g.At > 0 && at > g.At+growthTold {
			b.Partition = r.Int32N(g.To)
		}
		n := 3 + r.IntN(4)
		switch r.IntN(40) {
		case 0:
			n = 60
		case 1, 2:
			b.Txn = true
		case 3, 4:
			b.Txn, b.Aborted = true, true
		}
		for range n {
			b.Records = append(b.Records, drawInput(r, drawScript(r, brisk)))
		}
		drawChaff(r, b.Records)
		bs = append(bs, b)
	}
	// Some logs end with what nobody is shown.
	for p := range int32(partitions) {
		b := Batch{At: lastInput, Partition: p}
		switch r.IntN(3) {
		case 0:
			b.Txn, b.Aborted = true, true
		case 1:
			continue
		}
		for range 3 {
			in := drawInput(r, drawScript(r, brisk))
			in.Chaff = true
			b.Records = append(b.Records, in)
		}
		bs = append(bs, b)
	}
	// A backlog at the start, and as many records in all as were asked for.
	have := (&Schedule{Inputs: bs}).Records()
	for p := range int32(partitions) {
		b := Batch{Partition: p}
		for range max(20, (minRecords+partitions-1-have)/partitions+1) {
			b.Records = append(b.Records, drawInput(r, drawScript(r, brisk)))
		}
		drawChaff(r, b.Records)
		bs = append([]Batch{b}, bs...)
	}
	return bs
}

// drawChaff draws what compaction may take: now and then all of a batch, else one
// here and there.
func drawChaff(r *rand.Rand, rs []Input) {
	all := r.IntN(12) == 0
	for i := range rs {
		rs[i].Chaff = all || r.IntN(12) == 0
	}
}

// minRecords is the least number of records in the time of faults.
const minRecords = 1000

// quietBursts are the bursts of the quiet time, each as long as the handlers
// need some seconds for.
const quietBursts = 4

func drawQuiet(r *rand.Rand) (bs []Batch) {
	for burst := range quietBursts {
		for p := range int32(partitions) {
			b := Batch{At: time.Duration(burst), Partition: p}
			for range 25 {
				b.Records = append(b.Records, drawInput(r, drawQuietScript(r, burst == quietBursts-1)))
			}
			bs = append(bs, b)
		}
	}
	return bs
}

func drawInput(r *rand.Rand, script []Step) Input {
	in := Input{Key: fmt.Append(nil, "k", r.IntN(12)), Value: randomBytes(r, r.IntN(120)), Script: script}
	switch n := r.IntN(20); {
	case n < 4:
		in.Key = nil
	case n == 4:
		in.Key = []byte{}
	case n == 5:
		in.Key = randomBytes(r, 8)
	}
	switch r.IntN(25) {
	case 0:
		in.Value = nil
	case 1:
		in.Value = []byte{}
	case 2:
		in.Value = randomBytes(r, 4<<10)
	}
	if r.IntN(8) == 0 && script[0].Act != actDrop {
		in.Emits = 1 + r.IntN(2)
	}
	for range r.IntN(3) {
		h := kgo.RecordHeader{Key: []string{"a", "b", "\xff\xfe", ""}[r.IntN(4)], Value: randomBytes(r, r.IntN(10))}
		if r.IntN(4) == 0 {
			h.Value = nil
		}
		in.Headers = append(in.Headers, h)
	}
	return in
}

func randomBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func between(r *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(r.Int64N(int64(most-least))).Round(time.Millisecond)
}
