package natdiscovery

import "slices"

// MinMTU is the size of the packet that every IPv4 path is taken to let through, in
// bytes: what every host can receive (RFC 791, section 3.1).
const MinMTU = 576

// MTUSearch looks for the largest packet that gets through a path: between the
// largest that did and the smallest that did not. Every step tries several sizes at
// once, so that three steps find any size up to that of jumbo frames where a binary
// search would need thirteen, and as long for each.
type MTUSearch struct {
	Passed int // the largest size that got through, in bytes; 0 if none did yet
	Lost   int // the smallest that did not; above the largest possible if all did
}

// perStep is how many sizes are tried at once.
const perStep = 32

// NewMTUSearch returns the search below the MTU of the node's own device.
func NewMTUSearch(local int) MTUSearch { return MTUSearch{Lost: local + 1} }

// First returns the sizes to begin with: what the device allows, which is what most
// paths let through, and, for a path that was measured before, its MTU and one more.
func (s MTUSearch) First(known int) []int {
	sizes := []int{s.Lost - 1}
	for _, size := range []int{known + 1, known} {
		if size >= MinMTU && size < sizes[0] {
			sizes = append(sizes, size)
		}
	}
	return sizes
}

// Next returns the sizes to try in the next step, the largest first; none if the
// search is over.
func (s MTUSearch) Next() []int {
	low := max(s.Passed, MinMTU-1)
	var sizes []int
	for i := range perStep {
		// evenly spaced between the two, neither of which needs another try
		if size := s.Lost - 1 - i*(s.Lost-1-low)/perStep; size > low {
			sizes = append(sizes, size)
		}
	}
	return slices.Compact(sizes)
}

// After returns the search after a step in which some of the sizes tried got through.
func (s MTUSearch) After(tried, passed []int) MTUSearch {
	for _, size := range passed {
		s.Passed = max(s.Passed, size)
	}
	for _, size := range tried {
		// A packet may get lost for other reasons: where a larger one passed, it did.
		if size > s.Passed {
			s.Lost = min(s.Lost, size)
		}
	}
	return s
}
