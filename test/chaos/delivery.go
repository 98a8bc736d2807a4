package main

import "github.com/kconsume/kconsume/test/chaos/journal"

// delivery is one call of a handler, as its journal tells.
type delivery struct {
	begin, end int64 // unix ns; end 0 = it never ended
	offset     int64 // origin
	number     int64 // of the task
	proc       int32 // index of the handler's process
	partition  int32 // origin
	attempt    int16
	stage      int16 // 0 = main, 1.. = tiers; −1 = another
	outcome    journal.Outcome
}

// handlerProc is a process of a handler.
type handlerProc struct {
	life  string // of the member that started it: m1.3
	pid   int
	calls int
}

// record names a record by its origin.
type record struct {
	partition int32
	offset    int64
}

func (d *delivery) record() record { return record{d.partition, d.offset} }
