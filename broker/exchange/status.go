package exchange

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Healthy returns nil while both sides are read and the last pass left nothing undone,
// and otherwise what is wrong.
func (e *Exchange) Healthy() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.status.problem()
}

func (s Status) problem() error {
	switch {
	case len(s.Errors) > 0:
		return errors.New(strings.Join(s.Errors, "; "))
	case s.Reading:
		return errors.New("still reading both sides")
	}
	return nil
}

// Status returns the state of the exchange. It is safe for concurrent use.
func (e *Exchange) Status() Status {
	e.mu.Lock()
	defer e.mu.Unlock()
	status := e.status
	status.Refused, status.Errors = slices.Clone(status.Refused), slices.Clone(status.Errors)
	return status
}

// Status is the state of an Exchange, for conditions and metrics.
type Status struct {
	// Connected reports whether every clusterset on the broker is being read.
	Connected bool
	// NotRead reports whether nothing of any clusterset on the broker comes here, for the reasons
	// in Errors.
	NotRead bool
	// Reading reports whether nothing is wrong, but not all objects have been read yet.
	Reading bool
	// LastSync is the time when both sides were last seen to be the same; zero if never.
	LastSync time.Time
	// Digest is the digest of the objects of Free kinds in this cluster when they were last
	// seen to be all that its clustersets have; empty if never. While it differs from the
	// digest of the objects that are here, a change is on its way.
	Digest string
	// Sets are the clustersets for which Digest is, sorted.
	Sets []string
	// Writes counts the objects written or deleted on either side.
	Writes uint64
	// Refused lists objects that are not copied, maxRefused at most, taken from each cluster in
	// turn; RefusedMore counts the others.
	Refused     []Refusal
	RefusedMore int
	// Errors lists what is wrong now, sorted: unreachable sides and failed writes.
	Errors []string
}

// Refusal is the reason why an object is not copied.
type Refusal struct {
	Kind      string
	Namespace string
	Name      string
	Local     bool // found in this cluster, not on the broker
	Reason    string

	maker string // see makerOf; empty: it is about an object in this cluster
	early bool   // it may be copied soon: it is reported only if it is still refused then
}

func (r Refusal) String() string {
	where := "on the broker"
	if r.Local {
		where = "in this cluster"
	}
	return fmt.Sprintf("%s %s/%s %s: %s", r.Kind, r.Namespace, r.Name, where, r.Reason)
}

// withoutQuery returns err with the host, unless err names it, in place of the URL of a
// request, which is long and differs from one attempt to the next.
func withoutQuery(err error) error {
	var request *url.Error
	if !errors.As(err, &request) {
		return err
	}
	u, parseErr := url.Parse(request.URL)
	if parseErr != nil {
		return err
	}
	if strings.Contains(request.Err.Error(), u.Host) {
		return request.Err
	}
	return fmt.Errorf("%s: %w", u.Host, request.Err)
}

// faults are the sides that are not read now, by the reason, in the order in which they were noted.
type faults struct {
	reasons []string
	sides   map[string][]string
}

func (f *faults) add(side, reason string) {
	if f.sides == nil {
		f.sides = map[string][]string{}
	}
	if f.sides[reason] == nil {
		f.reasons = append(f.reasons, reason)
	}
	f.sides[reason] = append(f.sides[reason], side)
}

// texts returns an error for each side, and one for all the further sides with the same reason if
// there are many.
func (f *faults) texts() (out []string) {
	const most = 3
	for _, reason := range f.reasons {
		sides := f.sides[reason]
		for _, side := range sides[:min(len(sides), most)] {
			out = append(out, fmt.Sprintf("watching %s: %s", side, reason))
		}
		if more := len(sides) - most; more > 0 {
			out = append(out, fmt.Sprintf("watching %d more clustersets: %s", more, reason))
		}
	}
	return out
}
