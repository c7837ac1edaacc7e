package dataplane

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrDrift means that the target does not hold the wanted State although every step
// was taken, several times.
var ErrDrift = errors.New("dataplane did not converge")

// Failure is the reason why a target does not hold an object as wanted, or still holds an
// object that is not wanted.
type Failure struct {
	Key Key
	Err error // of the step
}

// Error implements error.
func (f *Failure) Error() string { return f.Err.Error() }

// Unwrap returns the error of the step.
func (f *Failure) Unwrap() error { return f.Err }

// DriftError is the error of Sync if the target does not hold the wanted State. It is an
// ErrDrift.
type DriftError struct {
	// Failures are sorted: first the wanted objects, in creation order, without those that
	// fail only because an object that they depend on does; then the objects that are left.
	Failures []*Failure
	// Affected has, for every wanted object that fails or depends on one that does, directly
	// or not, the Failures because of which it does. Everything else is held as wanted.
	Affected map[Key][]*Failure

	leading State // see Held
}

// Error implements error.
func (d *DriftError) Error() string {
	var b strings.Builder
	b.WriteString(ErrDrift.Error())
	for _, f := range d.Failures {
		fmt.Fprintf(&b, "\n%v", f)
	}
	return b.String()
}

// Unwrap implements the interface of package errors for several errors.
func (d *DriftError) Unwrap() []error {
	out := []error{ErrDrift}
	for _, f := range d.Failures {
		out = append(out, f)
	}
	return out
}

// drift returns what follows from the steps that are still to be taken from have, which was
// observed, to want, and the failures of the last attempt to take them.
func drift(have, want State, left []Op, failed map[Key]error) *DriftError {
	failure := func(op Op) *Failure {
		if err := failed[op.key()]; err != nil {
			return &Failure{op.key(), err}
		}
		return &Failure{op.key(), fmt.Errorf("still to do, or undone by another program: %v", op)}
	}
	missing := map[Key]*Failure{}
	var remaining []*Failure
	for _, op := range left {
		if op.New != nil {
			missing[op.key()] = failure(op)
		} else {
			remaining = append(remaining, failure(op))
		}
	}
	d := &DriftError{Affected: map[Key][]*Failure{}}
	for _, o := range want.Sorted() { // dependencies come first, so one pass is enough
		var why []*Failure
		for _, k := range o.Needs() {
			for _, f := range d.Affected[k] {
				if !slices.Contains(why, f) {
					why = append(why, f)
				}
			}
		}
		if own := missing[o.Key()]; own != nil && len(why) == 0 {
			why = []*Failure{own}
			d.Failures = append(d.Failures, own)
		}
		if len(why) > 0 {
			d.Affected[o.Key()] = why
		}
	}
	d.Failures = append(d.Failures, remaining...)
	d.leading = d.sound(have.leading(), want)
	return d
}
