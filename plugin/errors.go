package plugin

import "time"

// verdictError is an error with an explicit verdict. Its text is the wrapped
// error's.
type verdictError struct {
	err        error
	class      Class
	reason     Reason
	retryAfter time.Duration
	asked      bool // by RetryAfter
	rule       string
}

func (e *verdictError) Error() string { return e.err.Error() }
func (e *verdictError) Unwrap() error { return e.err }

// Transient marks err as one that may pass: the record is delivered again,
// after the retry topics' delays. nil stays nil.
func Transient(err error) error {
	if err == nil {
		return nil
	}
	return &verdictError{err: err, class: ClassTransient, reason: ReasonTransient, rule: ruleExplicit}
}

// RetryAfter is Transient with a wish for how long to wait; 0 or less is none.
// nil stays nil.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &verdictError{err: err, class: ClassTransient, reason: ReasonTransient, retryAfter: max(d, 0), asked: true, rule: ruleExplicit}
}

// Permanent marks err as one that will not pass: the record goes to the dead
// letters. nil stays nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &verdictError{err: err, class: ClassPermanent, reason: ReasonPermanent, rule: ruleExplicit}
}

// Drop says that nothing is to be done for the record, on purpose: it is done,
// and counted apart under this reason.
func Drop(reason string) error {
	return &verdictError{err: dropped(reason), class: ClassDrop, rule: ruleExplicit}
}

type dropped string

func (d dropped) Error() string { return string(d) }

// poison marks an error of decoding the record's bytes.
func poison(err error, rule string) error {
	return &verdictError{err: err, class: ClassPermanent, reason: ReasonPoison, rule: rule}
}
