//go:build linux

package kernel

import (
	"time"

	"subctl/dataplane"
)

// A program that does not start may take seconds to fail, and the loop of the agent, which
// has other cables to look after, waits for it. So a step that has failed slowly is not tried
// again for some time: the same object then fails with the same error at once.
const (
	slow = time.Second // a step that takes so long is slow
	rest = 3           // how many times the duration of the step to wait
)

// setback is a step that has failed slowly.
type setback struct {
	want  dataplane.Object
	err   error
	until time.Time
}

// try puts an object, unless that has failed slowly a short time ago.
func (h *Host) try(old, want dataplane.Object) error {
	k := want.Key()
	if s, ok := h.setbacks[k]; ok && s.want.Equal(want) && time.Now().Before(s.until) {
		return s.err
	}
	delete(h.setbacks, k)
	began := time.Now()
	err := h.byKind[k.Kind].Put(old, want)
	if took := time.Since(began); err != nil && took >= slow {
		h.setbacks[k] = setback{want, err, time.Now().Add(rest * took)}
	}
	return err
}
