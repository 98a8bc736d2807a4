// Package engine consumes Kafka topics for a group and sees each record through
// to its end: handled, waiting in a retry tier, or in the dead letter queue.
//
// # A record's way
//
//	group ─ generation ─▶ partition: fetch → [gate until due] → track → keys → dispatch ─▶ handler
//	                                                                                        │ verdict
//	             commit ◀─ highest contiguous settled ◀─ settle ◀─ decide: done | tier | DLQ (acked by the broker)
//
// Read it in this order: membership.go joins the group and tells the loop of
// each generation; ownership.go takes and gives up partitions; fetching.go
// reads them; dispatch.go admits each record, sends it, and takes the answer;
// decide.go says what becomes of it; forward.go and emit.go say what is written
// on, and sink.go writes it; tracker.go and commit.go let the commit follow.
// loop.go turns all of it. layout.go and watch.go look after the topics meanwhile.
//
// The main topic, the retry tiers and the replay topic are one thing: a stage,
// a topic with a delay. Partition p of every stage is a lane, which belongs to
// one member (balancer.go) and in which a key is handled by one call at a time.
//
// # Ownership
//
// One goroutine, the loop, owns all partitions. Requests to brokers run beside
// it and come back as events; the handler's answers come in batches. Nothing on
// the way of a record takes a lock, starts a goroutine or sends on a channel
// for that record alone.
//
// # Invariants
//
// They hold at every moment, over crashes, rebalances and broken brokers. Code
// that upholds one cites its number.
//
//	I1  Accounted: an acknowledged input record is handled, waiting in a tier, in
//	    the DLQ, or not committed.
//	I2  No phantom: nothing is delivered that was not produced.
//	I3  Commit never ahead: below a committed offset everything is settled.
//	I4  Commits of a partition are monotonic.
//	I5  Attempts are 1..max; a redelivery repeats its number, a forward adds one.
//	I6  Nothing is delivered before it is due.
//	I7  Duplicates are only what was in flight, or settled since the last commit,
//	    or written with an unknown outcome, when a member was lost.
//	I8  Key order where it was asked for.
//	I9  Key, value and the record's own headers stay byte for byte.
//	I10 A stop ends within the drain timeout.
//	I11 Gaps come only from compaction, control batches and retention.
package engine
