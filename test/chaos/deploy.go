package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/kconsume/kconsume/test/chaos/journal"
)

const (
	deployMembers = 3
	deployRounds  = 3
	deployRest    = 5 * time.Second // before, between and after
)

// runDeploy is the mode deploy: three members are replaced one after another,
// as a package's new version is rolled out, while a producer writes.
func runDeploy(ctx context.Context, s settings, out *os.File) (err error) {
	s.members = deployMembers
	if s.seed == 0 {
		s.seed = rand.Uint64()
	}
	r, err := newRig(ctx, s, chaosNodes, s.partitions, chaosNodes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close(s.keep)) }()
	c, e := newRun(r)
	began := time.Now()
	var rounds []round
	err = c.work(ctx, func(ctx context.Context) error {
		for range deployRounds {
			one, err := c.deploy(ctx)
			if err != nil {
				return err
			}
			rounds = append(rounds, one)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := c.collect(ctx, e); err != nil {
		return err
	}
	f := check(e)
	cancelled := 0
	for i := range e.deliveries {
		if e.deliveries[i].outcome == journal.Cancelled || e.deliveries[i].end == 0 {
			cancelled++
		}
	}
	c.report(out, f, time.Since(began))
	fmt.Fprintf(out, "\nrolling deploy of %d members, %.0f records a second in %d partitions\n", deployMembers, s.rate, s.partitions)
	for i, one := range rounds {
		pauses := longestPauses(e.deliveries, one, s.partitions)
		fmt.Fprintf(out, "deploy %d took %v: longest pause of a partition %s, of the median partition %s\n",
			i+1, time.Duration(one.until-one.from).Round(time.Millisecond), seconds(pauses[len(pauses)-1]), seconds(pauses[len(pauses)/2]))
	}
	fmt.Fprintf(out, "duplicates %d (target 0), deliveries cancelled %d (target 0)\n", f.duplicates.total, cancelled)
	if f.bad() || len(c.troubles) > 0 || f.duplicates.total > 0 || cancelled > 0 {
		return errBroken
	}
	return nil
}

// round is one deploy, from the first signal until all went on for a while.
type round struct{ from, until int64 }

// deploy replaces every member once. The next one's turn is when the new life
// of the one before has handled something.
func (c *run) deploy(ctx context.Context) (round, error) {
	rest := func() error {
		select {
		case <-time.After(deployRest):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if err := rest(); err != nil {
		return round{}, err
	}
	one := round{from: time.Now().UnixNano()}
	if err := c.strike(ctx, rolling); err != nil {
		return one, err
	}
	if err := c.working(ctx); err != nil {
		return one, err
	}
	err := rest()
	one.until = time.Now().UnixNano()
	return one, err
}

// longestPauses are, in rising order, each partition's longest time without a
// first delivery from the main topic during a deploy.
func longestPauses(all []delivery, r round, partitions int) []time.Duration {
	begins := make([][]int64, partitions)
	for i := range all {
		if d := &all[i]; d.stage == 0 && d.begin >= r.from && d.begin <= r.until {
			begins[d.partition] = append(begins[d.partition], d.begin)
		}
	}
	pauses := make([]time.Duration, partitions)
	for p, at := range begins {
		at = append(at, r.from, r.until)
		slices.Sort(at)
		for i := 1; i < len(at); i++ {
			pauses[p] = max(pauses[p], time.Duration(at[i]-at[i-1]))
		}
	}
	slices.Sort(pauses)
	return pauses
}
