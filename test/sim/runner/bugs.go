package main

// bug is a planted one: a piece of the engine's text and what takes its place.
// The text stands in the file exactly once; where it does not any more, the
// bug has to be planted anew.
type bug struct {
	name, file, old, new string
}

// bugs are what the checker has to catch. Each breaks one promise in one place.
func bugs() []bug {
	return []bug{
		{
			"commit before the forward is acknowledged", "engine/sink.go",
			"	msgs, alone := s.take()\n",
			"	msgs, alone := s.take()\n	for _, x := range s.batch {\n		if f, ok := x.(*forward); ok {\n			l.settle(f.p, f.slot)\n		}\n	}\n",
		},
		{
			"settle on a failed write", "engine/sink.go",
			"		case err == nil:\n			x.tried().offset = w.receipts[i].offset\n			x.arrived(l, now)",
			"		case err == nil || w.errs != nil:\n			x.arrived(l, now)",
		},
		{
			"forget what was decided between two generations", "engine/sink.go",
			"	for _, x := range kept {\n		l.ship(x)\n	}",
			"	_ = kept",
		},
		{
			"settle before what was emitted has arrived", "engine/emit.go",
			"			o.left++\n",
			"",
		},
		{
			"commit ten times too late", "engine/commit.go",
			"	l.nextCommit = now.Add(l.cfg.CommitInterval)\n",
			"	l.nextCommit = now.Add(10 * l.cfg.CommitInterval)\n",
		},
		{
			"ignore the delay", "engine/dispatch.go",
			"	case a.due > now:",
			"	case a.due > now+1<<40:",
		},
		{
			"commit past an open record", "engine/tracker.go",
			"func (t *tracker[T]) committable() int64 { return t.floor }",
			"func (t *tracker[T]) committable() int64 {\n	if t.tail-t.head > 1 && t.entry(t.tail-1).settled {\n		return t.entry(t.tail - 1).next\n	}\n	return t.floor\n}",
		},
		{
			"do not drop lost partitions", "engine/ownership.go",
			"		if !ours || !follows(before, s.gen, p, at) {",
			"		if ours && !follows(before, s.gen, p, at) {",
		},
		{
			"keep partitions across generations that were missed", "engine/ownership.go",
			"		if !ours || !follows(before, s.gen, p, at) {",
			"		if !ours || before == nil {",
		},
		{
			"attempts are not counted", "engine/decide.go",
			"	m.Group, m.Failed = group, d.failed\n",
			"	m.Group = group\n",
		},
		{
			"one attempt more than the limit", "engine/decide.go",
			"d.failed >= p.maxAttempts",
			"d.failed > p.maxAttempts",
		},
		{
			"treat an unspecified verdict as an acknowledgement", "engine/decide.go",
			"	case plugin.ClassAck:\n",
			"	case plugin.ClassAck, plugin.ClassUnspecified:\n",
		},
		{
			"take the answer to a cancelled call for an acknowledgement", "engine/dispatch.go",
			"	if p.gone || cancelled {\n",
			"	if cancelled {\n		l.settle(p, slot)\n	} else if p.gone {\n",
		},
		{
			"free a key before its call has ended", "engine/dispatch.go",
			"	if !late {\n		// The key is freed last",
			"	if true {\n		// The key is freed last",
		},
		{
			"forget keys", "engine/dispatch.go",
			"	if it.keyed && !p.lane.keys.enter(it.key, ref{p, slot}) {",
			"	if it.keyed && !p.lane.keys.enter(it.key+slot, ref{p, slot}) {",
		},
		{
			"forget calls that run on after their partition was lost", "engine/dispatch.go",
			"	if len(p.lane.running) > 0 && ",
			"	if len(p.lane.running) > 1<<20 && ",
		},
		{
			"own headers are lost", "engine/history/history.go",
			"	for _, h := range own {\n		out = append(out, kafka.Header",
			"	for _, h := range own[:0] {\n		out = append(out, kafka.Header",
		},
		{
			"null becomes empty", "engine/forward.go",
			"kafka.Message{Key: rec.Key, Value: rec.Value, ",
			"kafka.Message{Key: append([]byte{}, rec.Key...), Value: rec.Value, ",
		},
		{
			"forward to another partition", "engine/writers.go",
			"		return partitions[m.Partition]\n",
			"		return partitions[(m.Partition+len(m.Value))%n]\n",
		},
		{
			"do not finish what lies in a gap at a stop", "engine/dispatch.go",
			"p.ready.takeBelow(p.limit)",
			"p.ready.takeBelow(0)",
		},
		{
			"do not write waiting records again at a stop", "engine/ownership.go",
			"		l.displace(p, time.Time{})\n",
			"",
		},
		{
			"do not commit at a stop", "engine/ownership.go",
			"d.commits < drainCommits && l.commit(now)",
			"d.commits > drainCommits && l.commit(now)",
		},
		{
			"do not commit at the end of a generation", "engine/ownership.go",
			"			if l.commit(now) {\n				return hard\n			}\n",
			"			l.gen.doubt = true\n", // so that what is left is not committed elsewhere either
		},
		{
			"begin at the end where nothing is committed", "engine/membership.go",
			"partition, m.cfg.Start, m.cfg.StartTime)",
			"partition, OffsetLatest, m.cfg.StartTime)",
		},
		{
			"begin behind what is committed", "engine/membership.go",
			"				out[topicPartition{topic, int32(p.ID)}] = start{p.Offset, p.Offset}\n",
			"				out[topicPartition{topic, int32(p.ID)}] = start{p.Offset, p.Offset + 1}\n",
		},
		{
			"begin before what is committed", "engine/membership.go",
			"				out[topicPartition{topic, int32(p.ID)}] = start{p.Offset, p.Offset}\n",
			"				out[topicPartition{topic, int32(p.ID)}] = start{p.Offset, max(0, p.Offset-1)}\n",
		},
		{
			"deliver what was aborted", "engine/fetching.go",
			"ReadCommitted: !l.cfg.ReadUncommitted,",
			"ReadCommitted: false,",
		},
		{
			"take a record's offset from its place in the batch", "engine/record/parse.go",
			"	r.Offset = b.base + c.varint()\n",
			"	_, r.Offset = c.varint(), b.base+int64(i)\n",
		},
		{
			"stay at a batch in which nothing is left", "engine/record/decode.go",
			"			d.set.Next = b.last + 1\n",
			"			if b.count > 0 {\n				d.set.Next = b.last + 1\n			}\n",
		},
		{
			"believe a broker that says an offset is gone", "engine/fetching.go",
			"	case s.start <= s.from && s.from <= s.end:\n",
			"	case s.start > s.end:\n",
		},
		{
			"go on at the end where retention has passed us by", "engine/fetching.go",
			"from: s.from, offset: s.start}",
			"from: s.from, offset: s.end}",
		},
		{
			"do not ask the group after standing still", "engine/frozen.go",
			"		f.suspect = true // also",
			"		f.suspect = false // also",
		},
		{
			"ask the group with what was committed, beside a commit that is under way", "engine/frozen.go",
			"	g, o, times := l.gen, l.committableOne(), f.times\n",
			"	l.committing = false\n	g, o, times := l.gen, l.committableOne(), f.times\n	for topic, parts := range o {\n		for id := range parts {\n			parts[id] = l.byTopic[topicPartition{topic, int32(id)}].committed\n		}\n	}\n",
		},
		{
			"do not grow the tiers of a topic that has grown", "engine/inspection.go",
			"		Grow: !i.cfg.KeepTopics, ",
			"		Grow: false, ",
		},
		{
			"take a topic made anew for the old one", "engine/layout.go",
			"known && before.id != id && stage {",
			"known && before.id != id && !stage {",
		},
		{
			"a stop waits for its calls without end", "engine/ownership.go",
			"until: time.Now().Add(l.cfg.DrainTimeout)",
			"until: time.Now().Add(100 * l.cfg.DrainTimeout)",
		},
	}
}
