package natdiscovery

import "slices"

// MinMTU is the assumed minimum MTU of an IPv4 path, in bytes: the size of the packet that
// every host must accept (RFC 791, section 3.1).
const MinMTU = 576

// An MTUSearch searches for the largest packet that passes a path: between the largest
// size that passed and the smallest that was lost. Every step tries several sizes at
// once. Three steps find any size up to jumbo frames; a binary search would need thirteen
// steps of the same duration.
type MTUSearch struct {
	Passed int // the largest size that passed, in bytes; 0 if none has yet
	Lost   int // the smallest size that was lost; above the device's MTU if none was
}

// perStep is the number of sizes in a step.
const perStep = 32

// NewMTUSearch returns a search up to local, the MTU of the node's device in bytes.
func NewMTUSearch(local int) MTUSearch { return MTUSearch{Lost: local + 1} }

// First returns the sizes of the first step: the MTU of the device, which most paths
// support, and, for a path with a known MTU, that MTU and one byte more. known is 0 if the
// MTU is not known.
func (s MTUSearch) First(known int) []int {
	sizes := []int{s.Lost - 1}
	for _, size := range []int{known + 1, known} {
		if size >= MinMTU && size < sizes[0] {
			sizes = append(sizes, size)
		}
	}
	return sizes
}

// Next returns the sizes of the next step, the largest first; none if the search is
// finished.
func (s MTUSearch) Next() []int {
	low := max(s.Passed, MinMTU-1)
	var sizes []int
	for i := range perStep {
		// evenly spaced between the two, excluding both
		if size := s.Lost - 1 - i*(s.Lost-1-low)/perStep; size > low {
			sizes = append(sizes, size)
		}
	}
	return slices.Compact(sizes)
}

// After returns the search after a step that tried some sizes, of which some passed.
func (s MTUSearch) After(tried, passed []int) MTUSearch {
	for _, size := range passed {
		s.Passed = max(s.Passed, size)
	}
	for _, size := range tried {
		// If a larger packet passed, this one was lost for another reason than its size.
		if size > s.Passed {
			s.Lost = min(s.Lost, size)
		}
	}
	return s
}
