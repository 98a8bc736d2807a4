package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/kconsume/kconsume/plugin/internal/wire"
)

// Rules as Verdict.Rule names them, as far as others act on them.
const (
	// RuleUnknown: no rule knew the error. It is permanent, and whoever is told
	// otherwise by --unknown-errors finds it by this name.
	RuleUnknown = "unknown"
	// RuleCancelled: the host cancelled the delivery, which has no verdict.
	RuleCancelled = "cancelled"
)

const (
	ruleExplicit   = "explicit"
	ruleClassifier = "classifier"
	ruleTimeout    = "timeout"
	rulePanic      = "panic"
)

// Classifier is a handler's own rule. It returns false where it has no opinion;
// a verdict of ClassUnspecified or ClassAck counts as none. Reason, Message,
// Causes and Rule are filled in where it leaves them empty.
type Classifier func(error) (Verdict, bool)

// Circumstances are what a verdict depends on besides the error.
type Circumstances struct {
	// Cancelled: the host cancelled the call. Whatever it returns but nil says
	// nothing about the record.
	Cancelled bool
	// Late: the call's deadline has passed.
	Late bool
	// Draining: the host has asked for the end, see Draining.
	Draining bool
}

// Classify turns what a handler returned into a verdict. It looks at types
// only, never at texts; the first rule that matches counts, and is recorded in
// Verdict.Rule. Verdict.Code is what the error's ErrorCode(), SQLState(),
// StatusCode() or gRPC status tells, whichever rule fires:
//
//  1. nil: done. Cancelled: no verdict at all.
//  2. Past the deadline, all but an explicit Permanent, Drop or RetryAfter:
//     transient, ReasonTimeout.
//  3. Transient, Permanent, RetryAfter, Drop, however deep they are wrapped.
//  4. The handler's own classifiers, in order.
//  5. Temporary() true, RetryAfter(), SafeToRetry(), true or not: transient.
//  6. context.DeadlineExceeded, context.Canceled: transient. While draining,
//     Canceled comes before 4 and hands the record back: no verdict at all.
//  7. SQLState(): classes 08, 40, 53 and 57P transient; 22, 23, 42 permanent.
//  8. StatusCode(): 0, 408, 425, 429 and 5xx transient, other 4xx permanent.
//  9. A gRPC status: by its code; with RetryInfo transient, after its delay.
//  10. Errors of the network, database/sql's of a lost connection, unexpected EOF:
//     transient.
//  11. Errors of decoding JSON and protobuf: permanent, ReasonPoison.
//  12. Anything else: permanent, RuleUnknown.
func Classify(err error, c Circumstances, classifiers ...Classifier) Verdict {
	switch {
	case err == nil:
		return Verdict{Class: ClassAck}
	case c.Cancelled:
		return cancelledVerdict()
	}
	v, explicit := explicitVerdict(err)
	switch {
	case c.Late && !(explicit && outlivesDeadline(err)):
		return timeoutVerdict(err)
	case explicit:
		return describe(v, err)
	case c.Draining && errors.Is(err, context.Canceled):
		return cancelledVerdict()
	}
	for _, ask := range classifiers {
		if v, ok := ask(err); ok && v.Class > ClassAck && v.Class <= ClassDrop {
			v.Rule = cmp.Or(v.Rule, ruleClassifier)
			return describe(v, err)
		}
	}
	for _, r := range builtin() {
		if v, ok := r.match(err); ok {
			v.Rule = r.name
			return describe(v, err)
		}
	}
	return describe(Verdict{Class: ClassPermanent, Rule: RuleUnknown}, err)
}

// explicitVerdict is what the outermost wrapper of ours says. A wish for a
// delay further in is kept.
func explicitVerdict(err error) (Verdict, bool) {
	e, ok := find(err, func(*verdictError) bool { return true })
	if !ok {
		return Verdict{}, false
	}
	v := Verdict{Class: e.class, Reason: e.reason, RetryAfter: e.retryAfter, Rule: e.rule}
	if v.Class == ClassTransient && !e.asked {
		if inner, ok := find(e.err, func(e *verdictError) bool { return e.asked }); ok {
			v.RetryAfter = inner.retryAfter
		} else {
			v.RetryAfter = wish(e.err)
		}
	}
	return v, true
}

// outlivesDeadline: said on purpose, and not what a cut-off call would say.
func outlivesDeadline(err error) bool {
	e, ok := find(err, func(*verdictError) bool { return true })
	return ok && (e.class != ClassTransient || e.asked)
}

func cancelledVerdict() Verdict { return Verdict{Rule: RuleCancelled} }

func timeoutVerdict(err error) Verdict {
	return describe(Verdict{Class: ClassTransient, Reason: ReasonTimeout, Rule: ruleTimeout}, err)
}

// panicVerdict is the verdict on a handler that did not return: recovered is
// nil where it ended its goroutine.
func panicVerdict(recovered any, stack []byte, c Circumstances) Verdict {
	if c.Cancelled {
		return cancelledVerdict()
	}
	err := panicError(recovered)
	v := describe(Verdict{Class: ClassPermanent, Reason: ReasonPanic, Rule: rulePanic}, err)
	if c.Late {
		v = timeoutVerdict(err)
	}
	v.Stack = string(stack[:min(len(stack), wire.MaxStackBytes)])
	return v
}

// panicError does not wrap: the methods of what was thrown are not to be
// trusted, and fmt calls them safely.
func panicError(recovered any) error {
	if recovered == nil {
		return errors.New("handler ended its goroutine (runtime.Goexit, FailNow of testing)")
	}
	return fmt.Errorf("panic: %v", recovered)
}

// describe fills in what v lacks from err, and cuts texts to the wire's bounds.
func describe(v Verdict, err error) Verdict {
	if v.Message == "" {
		v.Message = err.Error()
	}
	if v.Causes == nil {
		v.Causes = causes(err, v.Message)
	}
	v.Reason = reasonOf(v)
	v.Message = wire.Clip(v.Message, wire.MaxTextBytes)
	v.Code = wire.Clip(cmp.Or(v.Code, codeOf(err)), wire.MaxCodeBytes)
	v.Rule = wire.Clip(v.Rule, wire.MaxCodeBytes)
	v.Stack = wire.Clip(v.Stack, wire.MaxStackBytes)
	v.RetryAfter = max(v.RetryAfter, 0)
	v.Causes = v.Causes[:min(len(v.Causes), wire.MaxCauses)]
	v.Emitted = nil
	return v
}

// reasonOf keeps the reasons that a handler may give.
func reasonOf(v Verdict) Reason {
	switch v.Class {
	case ClassTransient:
		if v.Reason == ReasonTimeout {
			return v.Reason
		}
		return ReasonTransient
	case ClassPermanent:
		if v.Reason == ReasonPoison || v.Reason == ReasonPanic {
			return v.Reason
		}
		return ReasonPermanent
	}
	return ""
}

// causes are the texts of what err wraps, outermost first, without those that
// only repeat the one before, as a wrapper of ours does.
func causes(err error, outer string) []string {
	var list []string
	last := outer
	for e := range tree(err) {
		text := e.Error()
		if text == last {
			continue
		}
		last = text
		list = append(list, wire.Clip(text, wire.MaxTextBytes))
		if len(list) == wire.MaxCauses {
			break
		}
	}
	return list
}

// maxTree bounds the errors looked at.
const maxTree = 256

// tree goes over err and all it wraps, outermost first, depth first.
func tree(err error) iter.Seq[error] {
	return func(yield func(error) bool) {
		left := maxTree
		var walk func(error) bool
		walk = func(e error) bool {
			if e == nil || left == 0 {
				return true
			}
			left--
			if !yield(e) {
				return false
			}
			switch w := e.(type) {
			case interface{ Unwrap() error }:
				return walk(w.Unwrap())
			case interface{ Unwrap() []error }:
				for _, inner := range w.Unwrap() {
					if !walk(inner) {
						return false
					}
				}
			}
			return true
		}
		walk(err)
	}
}

// find is the outermost error of type T in err that fits. Unlike errors.As it
// goes on behind one that does not.
func find[T any](err error, fits func(T) bool) (T, bool) {
	for e := range tree(err) {
		t, ok := any(e).(T)
		if as, has := e.(interface{ As(any) bool }); !ok && has {
			ok = as.As(&t)
		}
		if ok && fits(t) {
			return t, true
		}
	}
	var none T
	return none, false
}
