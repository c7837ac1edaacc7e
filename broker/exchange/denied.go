package exchange

import (
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// This file leaves clustersets in which this cluster no longer has any rights, although it has no
// signed statement about that: somebody has deleted the clusterset on the broker, or the rights, by
// hand.

// deniedLimit is the time for which the broker must have refused all requests for a clusterset,
// while it answers requests for another one, before this cluster counts as no member any more. A
// broker that refuses everything may be starting, or may be being restored from a backup, which
// decides nothing.
const deniedLimit = time.Minute

// leaveDenied empties what is known of such clustersets. Otherwise an exchange that has just
// started would wait for them forever.
func (e *Exchange) leaveDenied(now time.Time) {
	answers := slices.ContainsFunc(e.sets, func(f *followed) bool { return f.known() && f.fault() == nil })
	for _, f := range e.sets {
		switch {
		case !answers || !f.denied():
			f.deniedSince = time.Time{}
		case f.deniedSince.IsZero():
			f.deniedSince = now
		case now.Sub(f.deniedSince) >= e.deniedLimit:
			for _, m := range f.mirrors {
				m.clear()
			}
		}
	}
}

// known reports whether all of the side was read.
func (s side) known() bool {
	return !slices.ContainsFunc(s.mirrors, func(m *mirror) bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return !m.known
	})
}

// denied reports whether the API server refuses all requests for the side.
func (s side) denied() bool {
	return !slices.ContainsFunc(s.mirrors, func(m *mirror) bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return !apierrors.IsForbidden(m.err)
	})
}

// clear makes the mirror known, and empty.
func (m *mirror) clear() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.objects = map[string]client.Object{}
	m.empty = nil
	m.known = true
	m.tooMany = false
	m.digest = 0
}
