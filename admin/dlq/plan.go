package dlq

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/kconsume/kconsume/admin/dlq/state"
	"github.com/kconsume/kconsume/engine/topology"
	"github.com/kconsume/kconsume/plugin"
)

const (
	planLife   = time.Hour
	planFirst  = 20 // positions that a plan shows
	planErrors = 20 // kinds of errors that a plan tells apart

	targetReplay = "replay"
	targetSource = "source"
)

// candidate is a dead letter that a selection means, with what became of it.
type candidate struct {
	id      state.ID
	status  Status
	version int64 // of its state: changes with everything that is done about it
	holder  string
	normal  printed
	handler string
	topic   string // of its origin
	replays int
	size    int
}

// normalise puts in what a request leaves out, and refuses what cannot be.
func (r *PlanRequest) normalise(a Actor) error {
	if err := r.Selection.check(); err != nil {
		return err
	}
	r.Selection.Positions = order(r.Selection.Positions)
	r.Selection.Since, r.Selection.Until = r.Selection.Since.UTC(), r.Selection.Until.UTC()
	r.Reason = strings.TrimSpace(r.Reason)
	switch {
	case len(r.Reason) > MaxReason:
		return refuse(KindInvalid, "the reason has %d bytes: use %d at most", len(r.Reason), MaxReason)
	case !slices.Contains([]Action{ActionReplay, ActionResolve, ActionDiscard, ActionRestore}, r.Action):
		return refuse(KindInvalid, "action %q: use replay, resolve, discard or restore", string(r.Action))
	case r.Action != ActionReplay && (r.Target != "" || r.Rate != 0 || r.Canary || r.Force):
		return refuse(KindInvalid, "target, rate, canary and force are for a replay, not for %s", r.Action)
	case r.Action != ActionReplay && r.Reason == "":
		return refuse(KindInvalid, "%s needs a reason", r.Action)
	case math.IsNaN(r.Rate) || r.Rate < 0 || r.Rate > MaxRate || r.Rate > 0 && r.Rate < minRate:
		return refuse(KindInvalid, "rate %v: use %v to %d records per second", r.Rate, minRate, MaxRate)
	case r.Target != "" && r.Target != targetReplay && r.Target != targetSource:
		return refuse(KindInvalid, "target %q: use %s or %s", r.Target, targetReplay, targetSource)
	case r.Force && !a.Role.Includes(RoleAdmin):
		return refuse(KindDenied, "force is for the role %s, and %s has %s: ask one of them", RoleAdmin, a.Name, a.Role)
	case r.Force && r.Reason == "":
		return refuse(KindInvalid, "force needs a reason")
	}
	if r.Action == ActionReplay {
		r.Target = cmp.Or(r.Target, targetReplay)
		r.Rate = cmp.Or(r.Rate, DefaultRate)
	}
	if len(r.Selection.Statuses) == 0 {
		r.Selection.Statuses = r.Action.from()
	}
	return nil
}

// minRate is the slowest replay: a record in a hundred seconds.
const minRate = 0.01

// from are the statuses that an action takes records from.
func (a Action) from() []Status {
	switch a {
	case ActionReplay:
		return []Status{StatusNew}
	case ActionRestore:
		return []Status{StatusResolved, StatusDiscarded}
	}
	return []Status{StatusNew, StatusUncertain}
}

func (a Action) act() state.Act {
	switch a {
	case ActionResolve:
		return state.Resolve
	case ActionDiscard:
		return state.Discard
	case ActionRestore:
		return state.Restore
	}
	return state.Claim
}

// targetOf is the topic that a replay's copies go to. They never go to a DLQ.
func targetOf(r *PlanRequest, line *topology.Line, lines []topology.Line) (string, error) {
	if r.Action != ActionReplay {
		return "", nil
	}
	target := replayTopic(line)
	if r.Target == targetSource {
		target = line.Topic
	}
	for i := range lines {
		if l := &lines[i]; target == l.DLQ || target == l.State() {
			return "", refuse(KindInvalid, "target %s: %s is the DLQ of %s or its state, and nothing is replayed into one: use --target %s", r.Target, target, l.Topic, targetReplay)
		}
	}
	return target, nil
}

// chosen is what a plan is about: the records in the order of partition and
// offset, and how many were left out, by why.
type chosen struct {
	records  []candidate
	excluded map[string]int
	cut      bool // by MaxPlan
}

// chooser takes candidates one by one. It decides what a plan is about, and
// depends on nothing but them and the request.
type chooser struct {
	request *PlanRequest
	source  string // the line's main topic
	out     chosen
}

func newChooser(r *PlanRequest, line *topology.Line) *chooser {
	return &chooser{r, line.Topic, chosen{excluded: map[string]int{}}}
}

// full reports that the selection's limit is reached.
func (c *chooser) full() bool {
	n := len(c.out.records)
	return n >= MaxPlan+1 || c.request.Selection.Limit > 0 && n >= c.request.Selection.Limit
}

func (c *chooser) take(k candidate) {
	if why := c.excluded(&k); why != "" {
		c.out.excluded[why]++
		return
	}
	c.out.records = append(c.out.records, k)
}

// excluded is why a record is left out, "" if it is not.
func (c *chooser) excluded(k *candidate) string {
	if !c.request.Selection.wantsStatus(k.status) {
		return notNow(k)
	}
	if !state.Legal(k.status, c.request.Action.act()) {
		return notNow(k)
	}
	if c.request.Action != ActionReplay {
		return ""
	}
	switch {
	case k.topic != c.source:
		return "belongs to another topic than " + c.source
	case k.normal.class == string(plugin.ReasonOversize):
		return "stands for a record that was too large: find that one by its message, and replay it by hand"
	case k.replays >= MaxReplays && !c.request.Force:
		return fmt.Sprintf("was replayed %d times or more, and failed each time: repair the cause, then force it", MaxReplays)
	}
	return ""
}

func notNow(k *candidate) string {
	switch k.status {
	case StatusClaimed:
		return "claimed by job " + k.holder
	case StatusFailedAgain:
		return "failed again: it is a newer dead letter now"
	}
	return "is " + string(k.status)
}

func (c *chooser) done() chosen {
	if len(c.out.records) > MaxPlan {
		c.out.records, c.out.cut = c.out.records[:MaxPlan], true
	}
	return c.out
}

// digest binds a plan to the topic's life, to its records, and to what had been
// done about each.
func (c *chosen) digest(life, group, target, salt string, r *PlanRequest) string {
	type one struct {
		ID      string
		Status  Status
		Version int64
	}
	all := make([]one, len(c.records))
	for i, k := range c.records {
		all[i] = one{k.id.String(), k.status, k.version}
	}
	return digestOf(struct {
		Life, Group, Target, Salt string
		Request                   *PlanRequest
		Records                   []one
	}{life, group, target, salt, r, all})[:32]
}

func (c *chosen) ids() []state.ID {
	out := make([]state.ID, len(c.records))
	for i, k := range c.records {
		out[i] = k.id
	}
	return out
}

// plan describes what was chosen. handler is the one that runs now, "" = not known.
func (c *chosen) plan(topic, target, handler string, r PlanRequest, a Actor, now time.Time, scan Scan) Plan {
	p := Plan{
		Topic: topic, Request: r, Target: target, Records: len(c.records), Errors: []PlanCount{}, Excluded: counts(c.excluded),
		Warnings: []string{}, First: []Position{}, Statuses: map[Status]int64{}, Made: now.UTC(), Expires: now.Add(planLife).UTC(), By: a.Name,
	}
	errs, same := map[string]int{}, 0
	for i, k := range c.records {
		if i < planFirst {
			p.First = append(p.First, Position{k.id.Partition, k.id.Offset})
		}
		p.Bytes += int64(k.size)
		p.Statuses[k.status]++
		errs[strings.TrimSuffix(k.normal.class+": "+k.normal.normal, ": ")]++
		if handler != "" && k.handler == handler {
			same++
		}
	}
	p.Errors = few(counts(errs))
	if r.Action == ActionReplay && same > 0 {
		p.Warnings = append(p.Warnings, fmt.Sprintf("%d of %d failed in %s, which is still the handler that runs: they may fail again", same, len(c.records), text(handler)))
	}
	if c.cut {
		p.Warnings = append(p.Warnings, fmt.Sprintf("more records match than a plan may have: these are the first %d", MaxPlan))
	}
	if !scan.Complete {
		p.Warnings = append(p.Warnings, scan.Note)
	}
	return p
}

// counts orders counted words, the most frequent first.
func counts(m map[string]int) []PlanCount {
	out := []PlanCount{}
	for what, n := range m {
		out = append(out, PlanCount{what, n})
	}
	slices.SortFunc(out, func(a, b PlanCount) int {
		return cmp.Or(cmp.Compare(b.Records, a.Records), cmp.Compare(a.What, b.What))
	})
	return out
}

// few keeps the first of many counts, and what the others are together.
func few(all []PlanCount) []PlanCount {
	if len(all) <= planErrors {
		return all
	}
	rest := PlanCount{What: fmt.Sprintf("%d further kinds", len(all)-planErrors)}
	for _, c := range all[planErrors:] {
		rest.Records += c.Records
	}
	return append(all[:planErrors], rest)
}

// outdated says how a plan's records differ from what its selection means now.
func outdated(digest string, before []state.ID, now *chosen) error {
	have := map[state.ID]bool{}
	for _, id := range before {
		have[id] = true
	}
	more, left := 0, len(before)
	for _, k := range now.records {
		if have[k.id] {
			left--
		} else {
			more++
		}
	}
	switch {
	case more > 0 && left == 0:
		return refuse(KindConflict, "plan %s is out of date: %d more records match by now: plan again, with until= to leave out what comes later", digest, more)
	case more > 0 || left > 0:
		return refuse(KindConflict, "plan %s is out of date: %d of its records are not to be had any more, and %d others match: plan again", digest, left, more)
	}
	return refuse(KindConflict, "plan %s is out of date: something was done about its records since: plan again", digest)
}
