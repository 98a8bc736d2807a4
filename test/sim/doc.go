// Package sim plays whole histories of a consumer group against embedded brokers
// in a virtual network and in virtual time, and checks the engine's promises at
// each event. One seed is one history: what is produced, what the handlers
// answer, every fault, crash and stop, and when.
//
//	seed ─ Schedule ─▶ slots start, crash and stop members ─▶ link: each member's own wire to the brokers
//	                   faults: on a member's wire, on a broker, in a broker's answers, of the member itself
//	                   special histories of some seeds: a topic grows, or is made anew
//	producer ─▶ brokers ◀─ engines ─▶ handlers (verdicts by the script of each record)
//	              │            │            │
//	              └────── ledger ◀──────────┘   the checker's only knowledge
//
// The checker uses nothing of the engine. It knows what was produced, what each
// engine handed to its Deliverer and what the handlers made of it, each request
// that a broker took and in which order, and what the topics hold.
//
// # What is held
//
//	I1  At the end every input was acknowledged or dropped by a handler, or is in
//	    the DLQ, and every stage is committed to its end. Before that I3 holds it.
//	    Nobody has to account for what compaction or retention took, or what was in
//	    a topic that was deleted, before anybody was done with it.
//	I2  A delivery is of a position that a topic holds, and a forward of an input
//	    that a handler of the same member has failed (or of a waiting record that
//	    a stopping member writes again).
//	I3  When a broker takes a commit, every position below it is accounted for: a
//	    handler acknowledged it at that attempt or a later one, or a topic holds a
//	    forward of it. A position of a tier is also accounted for by a copy of it
//	    further on in that tier. An acknowledgement counts once all that the handler
//	    emitted has arrived in its topic. A verdict counts only if the member still ran when
//	    it was given, a forward only if the broker applied it.
//	I4  What the brokers hold as committed never falls.
//	I5  Attempt and MaxAttempts are what the stage's record says; a forward's
//	    attempts are those of a failed delivery of this member.
//	I6  A forward's due time is the failure plus the delay of its tier or the wish
//	    of the handler, cut off at the longest tier; nothing is delivered before.
//	I7  See below.
//	I8  Where the order is key (partition): the first delivery of a main record
//	    comes after the first delivery of every earlier record of its key and
//	    partition (of its partition). That holds over lost members too, because an
//	    owner begins at a commit. That two calls of a key do not overlap holds
//	    within a member only: a member that does not know yet that it lost a
//	    partition may still run a call which the next owner repeats. A call runs
//	    until it has returned, however late. Null keys have no order.
//	I9  Key, value, the record's own headers, its id and time are those produced, in
//	    each delivery and each forward.
//	I10 A stop ends within DrainTimeout and stopSlack, and once the faults are over
//	    everything is drained within drainBound, in virtual time.
//	I11 Aborted records and markers of transactions are never delivered and commits
//	    pass them, as they pass what compaction and retention took. A broker's word
//	    that an offset is out of range, where it is not, changes nothing.
//
// # I7, the bound on duplicates
//
// A tenure is the time in which one member holds one partition without a break:
// generation after generation of one member id whose numbers follow each other
// (n or n+1), each of them seen at work. (An engine may go on where this ends a
// tenure, never the other way round.) Its base is what was committed when the
// brokers took the first SyncGroup of its first generation.
//
//   - Within a tenure each copy of a record is delivered once at most.
//   - A tenure delivers no position below its base. So what it repeats was sent
//     before and lies at or above its base: that is what was in flight, or settled
//     since the last commit, when the tenure before ended. The number of such
//     positions, counted when a tenure sends its first record, summed over all
//     tenures, is the bound that is printed with the duplicates.
//   - A member writes a failed delivery on again only as long as no answer of the
//     broker has told it of success (a waiting record that is written to the end
//     of its tier at a stop aside).
//   - A member that stood still for a good part of its session delivers nothing,
//     and forwards nothing that it was not already writing, before the group has
//     heard from it (see still).
//   - In the quiet time after the faults, in which members are stopped and
//     started in turn and all at once, there are no duplicates at all (but of what
//     a stop that was too short cut off), and what
//     was settled is committed within the commit interval and promptSlack: that is
//     how far a commit may lag behind where nothing fails.
//
// # A topic made anew
//
// Its offsets mean other records from then on, and brokers know commits by names
// only. Until members have had time to notice (noticed), what they send and commit
// of it may be of the old one, and I3, I4, I7 and I8 of it are not asked for. From
// then on they are, from its beginning.
//
// # What is judged when
//
// Messages are held up, by seconds. So what a member sends is judged by what it
// knew when it sent it, what a broker takes by what the topics hold when it takes
// it, and an answer counts as known to a member only where it cannot have given up
// waiting for it (promptly).
//
// # What is not determined by the seed
//
// The Schedule is a pure function of the seed, the order in which Go runs
// goroutines that are ready at one instant is not: which of two members joins
// first, the leaders of topics that the brokers make, the ids of members, which
// ready case a select takes. So a seed that failed once may pass; its saved
// history shows what happened. Replaying it some ten times shows mostly whether
// the failure depends on that order.
package sim
