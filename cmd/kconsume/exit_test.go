package main

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/kconsume/kconsume/admin"
	"github.com/kconsume/kconsume/cmd/kconsume/internal/option"
	"github.com/kconsume/kconsume/engine"
	"github.com/kconsume/kconsume/engine/topics"
)

func TestExitCodes(t *testing.T) {
	plain := errors.New("plain")
	denied := &topics.Error{Class: topics.Denied, Err: plain}
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{plain, 1},
		{errAbandoned, 1},
		{errChanges, 2},
		{fail(exitUsage, "u"), 64},
		{&topics.Error{Class: topics.Unreachable, Err: plain}, 69},
		{&engine.Error{Class: engine.ErrUnreachable, Err: plain}, 69},
		{&engine.Error{Class: engine.ErrDenied, Err: plain}, 77},
		{&admin.CallError{Problem: admin.Problem{Status: 503}}, 75},
		{&admin.CallError{Problem: admin.Problem{Status: 500}}, 1},
		{denied, 77},
		{&engine.Error{Class: engine.ErrUnreachable, Err: fmt.Errorf("reach: %w", denied)}, 77},
		{&engine.Error{Class: engine.ErrConfig, Err: plain}, 78},
		{&engine.Error{Class: engine.ErrOffset, Err: plain}, 78},
		{&option.Error{}, 78},
		{&admin.InUseError{}, 78},
		{errors.Join(plain, &option.Error{}, fail(exitUsage, "u")), 78},
		{errors.Join(fmt.Errorf("wrapped: %w", errors.Join(plain, denied))), 77},
	} {
		if got := exitCode(c.err); got != c.want {
			t.Errorf("%v: %d, want %d", c.err, got, c.want)
		}
	}
}

func TestReportIsALineForEach(t *testing.T) {
	var b bytes.Buffer
	report(&b, errors.Join(errors.New("one"), errors.Join(errors.New("two"), errors.New("three\nfour\x1b[2J\u202e")), errChanges))
	if want := "kconsume: one\nkconsume: two\nkconsume: three; four\\x1b[2J\\u202e\n"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}
