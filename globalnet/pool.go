package globalnet

import (
	"encoding/binary"
	"net/netip"
	"slices"
)

// pool is the addresses of a network that can be allocated, by number: all except its first and its
// last one.
type pool struct {
	network netip.Prefix
	first   uint32
	size    int
}

// newPool returns the pool of an IPv4 network. A network that is no IPv4 network, or smaller than a
// /30, has none.
func newPool(network netip.Prefix) pool {
	if !network.IsValid() || !network.Addr().Is4() || network.Bits() > 30 {
		return pool{network: network}
	}
	network = network.Masked()
	return pool{network: network, first: number(network.Addr()) + 1, size: 1<<(32-network.Bits()) - 2}
}

// Capacity returns how many addresses of a network can be allocated.
func Capacity(network netip.Prefix) int { return newPool(network).size }

// index returns the number of an address; false if the pool does not have it.
func (p pool) index(a netip.Addr) (int, bool) {
	if !a.Is4() || p.size == 0 {
		return 0, false
	}
	n := number(a)
	if n < p.first || int(n-p.first) >= p.size {
		return 0, false
	}
	return int(n - p.first), true
}

// between returns the numbers of the pool's addresses from a to b, inclusive: the first number, and
// one more than the last number.
func (p pool) between(a, b netip.Addr) (first, end int) {
	from := max(int(number(a)), int(p.first))
	to := min(int(number(b))+1, int(p.first)+p.size)
	return from - int(p.first), to - int(p.first)
}

// addr returns the address with a number.
func (p pool) addr(i int) netip.Addr {
	return numbered(p.first + uint32(i))
}

// addrs returns the addresses with numbers: those of the given list, if they are the same.
func (p pool) addrs(of []int, same []netip.Addr) []netip.Addr {
	if slices.EqualFunc(of, same, func(i int, a netip.Addr) bool { return p.addr(i) == a }) {
		return same
	}
	out := make([]netip.Addr, len(of))
	for k, i := range of {
		out[k] = p.addr(i)
	}
	return out
}

// number returns an IPv4 address as a number.
func number(a netip.Addr) uint32 {
	b := a.As4()
	return binary.BigEndian.Uint32(b[:])
}

// numbered returns the IPv4 address with a number.
func numbered(n uint32) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], n)
	return netip.AddrFrom4(b)
}
