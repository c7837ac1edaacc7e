package broker

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Healthy returns nil while both sides are watched and the last sync left
// nothing undone, and what is wrong otherwise.
func (s *Syncer) Healthy() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.status.Errors) == 0 {
		return nil
	}
	return errors.New(strings.Join(s.status.Errors, "; "))
}

// Status returns what the sync is doing. It is safe for concurrent use.
func (s *Syncer) Status() SyncStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	status := s.status
	status.Refused, status.Errors = slices.Clone(status.Refused), slices.Clone(status.Errors)
	return status
}

// maxRefused is how many refusals are reported and logged: a member can cause thousands.
const maxRefused = 50

// SyncStatus is the state of a Syncer, for status and metrics.
type SyncStatus struct {
	// Connected says that every clusterset on the broker is being watched.
	Connected bool
	// LastSync is when both sides were last seen to be the same, zero if never.
	LastSync time.Time
	// Writes counts the objects written or deleted on either side.
	Writes uint64
	// Refused lists objects that are not copied: the first maxRefused, and RefusedMore
	// says how many there are besides.
	Refused     []Refusal
	RefusedMore int
	// Errors lists what is wrong now: unreachable sides and failed writes, sorted.
	Errors []string
}

// Refusal says why an object is not copied.
type Refusal struct {
	Kind      string // Cluster, Endpoint or CablePolicies
	Namespace string
	Name      string
	Local     bool // found in this cluster, not on the broker
	Reason    string
}

func (r Refusal) String() string {
	where := "on the broker"
	if r.Local {
		where = "in this cluster"
	}
	return fmt.Sprintf("%s %s/%s %s: %s", r.Kind, r.Namespace, r.Name, where, r.Reason)
}
