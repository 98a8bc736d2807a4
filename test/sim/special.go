package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What only some seeds go through: the main topic grows, or a topic is deleted and
// made anew.

// Growth is when the main topic grows, and to how many partitions.
type Growth struct {
	To    int32         // 0 = it does not
	At    time.Duration // 0 = after the faults, when no restart of a member helps
	Later []Batch       // produced then
}

// Anew is how a topic is deleted and made anew, while the members run or while
// they are stopped.
type Anew struct {
	Topic      string // "" = none
	Stopped    bool
	Pause      time.Duration // between the two
	Partitions int32         // of the new one

	Before []Batch // produced right before it; nobody waits for them
	At     []Batch // produced to the new one at once
	Later  []Batch // when all members have noticed
}

// drawSpecial draws which of them a seed goes through, if any.
func drawSpecial(r *rand.Rand) (g Growth, a Anew) {
	switch r.IntN(5) {
	case 0:
		g.To = partitions + 1 + r.Int32N(2)
		g.At = faultsFrom + between(r, 10*time.Second, 50*time.Second)
	case 1:
		g.To = partitions + 1 + r.Int32N(2)
		g.Later = drawEach(r, g.To, 10)
	case 2, 3:
		a = Anew{Topic: mainTopic, Stopped: r.IntN(3) == 0, Pause: between(r, 0, 12*time.Second), Partitions: partitions}
		if r.IntN(3) == 0 {
			a.Topic = tierTopic(tiers[r.IntN(len(tiers))])
		} else if r.IntN(3) == 0 {
			a.Partitions++
		}
		a.Before = drawEach(r, partitions, 10)
		a.At = drawEach(r, a.Partitions, 1+r.IntN(60)) // mostly fewer than before
		if a.Topic == mainTopic && r.IntN(2) == 0 {
			p := r.Int32N(partitions)
			for len(a.At[p].Records) < longer {
				a.At[p].Records = append(a.At[p].Records, drawInput(r, []Step{{Act: actAck, Takes: time.Millisecond}}))
			}
		}
		a.Later = drawEach(r, a.Partitions, 20)
	}
	return g, a
}

// longer is more than a partition of the main topic holds before it is deleted.
const longer = 500

// drawEach draws a batch of n records for each partition.
func drawEach(r *rand.Rand, parts int32, n int) (bs []Batch) {
	for p := range parts {
		b := Batch{Partition: p}
		for range n {
			b.Records = append(b.Records, drawInput(r, drawScript(r, true)))
		}
		bs = append(bs, b)
	}
	return bs
}

// growth grows the main topic in the time of faults, if it is to.
func (w *world) growth(g *Growth) {
	if g.At > 0 && w.until(g.At) {
		w.grow(g)
	}
}

// lateGrowth grows it after that, if it is to, and sees all of it handled.
func (w *world) lateGrowth(g *Growth) {
	if g.To == 0 || g.At > 0 {
		return
	}
	w.grow(g)
	if !w.until(w.now() + growthTold) {
		return
	}
	w.produceAll(g.Later)
	w.drain()
}

func (w *world) grow(g *Growth) {
	w.history.fault("", fmt.Sprintf("%s grows to %d partitions", mainTopic, g.To))
	q := kmsg.NewPtrCreatePartitionsRequest()
	q.TimeoutMillis = 1000
	one := kmsg.NewCreatePartitionsRequestTopic()
	one.Topic, one.Count = mainTopic, g.To
	q.Topics = append(q.Topics, one)
	if _, err := q.RequestWith(context.Background(), w.producer); err != nil {
		panic(err) // nothing disturbs this client
	}
	w.producer.ForceMetadataRefresh()
	w.transactor.ForceMetadataRefresh()
	w.special(GrowTopic)
}

// growthTold is how long producers take at most to hear of new partitions.
const growthTold = 8 * time.Second

func (w *world) special(k Kind) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults[k]++
	w.hits[k]++
}

// anew deletes a topic and makes it anew, and sees the new one handled.
func (w *world) anew(a *Anew) {
	if a.Topic == "" {
		return
	}
	w.settle()
	w.produceAll(a.Before)
	if !w.until(w.now() + 400*time.Millisecond) {
		return
	}
	running := []int{0, 1, 2}
	if a.Stopped {
		w.stopAll(running...)
	}
	w.history.fault("", fmt.Sprintf("%s is deleted, and made anew in %v", a.Topic, a.Pause))
	w.ledger.forget(a.Topic)
	if err := w.cluster.DeleteTopic(a.Topic); err != nil {
		panic(err)
	}
	time.Sleep(a.Pause)
	if err := w.cluster.CreateTopic(a.Topic, a.Partitions, nil); err != nil {
		panic(err)
	}
	w.history.fault("", a.Topic+" is there again")
	w.special(MakeAnew)
	for _, c := range []*kgo.Client{w.producer, w.transactor} {
		c.PurgeTopicsFromClient(mainTopic)
	}
	if a.Stopped {
		for _, slot := range running {
			w.start(slot, 50)
		}
	}
	w.produceAll(a.At)
	if !w.until(w.now() + noticed) {
		return
	}
	w.ledger.remember()
	w.produceAll(a.Later)
	if !w.until(w.now() + time.Second) {
		return
	}
	w.crash(1, w.member(1)) // the next owner goes by what was committed of the new one
	w.start(1, 51)
	w.drain()
}

// noticed is how long members take at most to notice that a topic is another one:
// they ask for it every ten seconds.
const noticed = 15 * time.Second

func (w *world) produceAll(bs []Batch) {
	for i := range bs {
		w.produce(&bs[i])
	}
}

// forget notes that a topic is about to be deleted. What nobody was done with is
// gone. Until remember, what members send and commit of it may be of the old one
// or of the new one, and positions in it say nothing.
func (l *ledger) forget(topic string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unsure = topic
	l.seeCommits()
	for tp, g := range l.logs {
		if tp.topic != topic {
			continue
		}
		l.settleLog(tp)
		for _, p := range g.positions {
			r := p.rec
			if r == nil {
				continue
			}
			r.gone = r.gone || !p.accounted()
			if topic == mainTopic {
				l.former[r.id()] = r
			}
			p.former = true
		}
		delete(l.logs, tp)
		delete(l.inputs, tp)
		delete(l.producers, tp)
	}
	l.forgetTenures(topic)
}

// remember ends the time in which members may not have noticed yet.
func (l *ledger) remember() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forgetTenures(l.unsure)
	l.unsure = ""
}

// forgetTenures has everybody's tenure of a topic begin anew, at its beginning.
func (l *ledger) forgetTenures(topic string) {
	for id := range l.tenures {
		if id.tp.topic == topic {
			delete(l.tenures, id)
		}
	}
	for _, g := range l.gens {
		delete(g.base, topic)
	}
}
