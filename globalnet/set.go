package globalnet

import "math/bits"

// set is a set of the numbers 0 … size-1. Adding and testing take constant time, and parts without
// any number take no memory.
type set struct {
	size  int
	pages []*page
}

const (
	wordBits = 64
	pageBits = 1 << 16
)

type page [pageBits / wordBits]uint64

func newSet(size int) *set {
	return &set{size: size, pages: make([]*page, (size+pageBits-1)/pageBits)}
}

// word returns the 64 numbers from 64*w.
func (s *set) word(w int) uint64 {
	if p := s.pages[w*wordBits/pageBits]; p != nil {
		return p[w%len(p)]
	}
	return 0
}

func (s *set) has(i int) bool { return s.word(i/wordBits)>>(i%wordBits)&1 != 0 }

func (s *set) add(i int) {
	p := s.pages[i/pageBits]
	if p == nil {
		p = new(page)
		s.pages[i/pageBits] = p
	}
	p[i%pageBits/wordBits] |= 1 << (i % wordBits)
}

func (s *set) remove(i int) {
	if p := s.pages[i/pageBits]; p != nil {
		p[i%pageBits/wordBits] &^= 1 << (i % wordBits)
	}
}

func (s *set) clone() *set {
	out := &set{size: s.size, pages: make([]*page, len(s.pages))}
	for i, p := range s.pages {
		if p != nil {
			c := *p
			out.pages[i] = &c
		}
	}
	return out
}

// len returns how many numbers the set has.
func (s *set) len() int {
	n := 0
	for _, p := range s.pages {
		if p != nil {
			for _, w := range p {
				n += bits.OnesCount64(w)
			}
		}
	}
	return n
}

// each calls do for each number that is in s and not in without (nil: an empty set), in ascending
// order.
func (s *set) each(without *set, do func(int)) {
	for n, p := range s.pages {
		if p == nil {
			continue
		}
		for k, word := range p {
			if without != nil && without.pages[n] != nil {
				word &^= without.pages[n][k]
			}
			for ; word != 0; word &= word - 1 {
				do(n*pageBits + k*wordBits + bits.TrailingZeros64(word))
			}
		}
	}
}

// covers reports whether s has all numbers of t, which has the same size.
func (s *set) covers(t *set) bool {
	missing := false
	t.each(s, func(int) { missing = true })
	return !missing
}

// lastFree returns the highest number up to from that is not in the set; -1 if there is none.
func (s *set) lastFree(from int) int {
	for i := from; i >= 0; {
		if s.word(i/wordBits) == ^uint64(0) {
			i = i/wordBits*wordBits - 1
			continue
		}
		if !s.has(i) {
			return i
		}
		i--
	}
	return -1
}

// firstRun returns the lowest number, at least from, with which n successive numbers begin that are
// not in the set; -1 if there is none.
func (s *set) firstRun(from, n int) int {
	run := 0
	for i := from; i < s.size; {
		if i%wordBits == 0 && i+wordBits <= s.size && s.word(i/wordBits) == ^uint64(0) {
			run = 0
			i = i + wordBits
			continue
		}
		if i++; s.has(i - 1) {
			run = 0
		} else if run++; run == n {
			return i - n
		}
	}
	return -1
}
