package dataplane

import (
	"net/netip"
	"slices"
)

// foreignRules drop packets from networks of Remote to those of Protected that arrive on other
// devices than In, and count them.
func (a Antispoof) foreignRules(r *antispoofRules) {
	if len(a.Remote) == 0 || len(a.In) == 0 {
		return
	}
	usual := func(chain string) {
		for _, d := range a.Usual {
			r.accept(chain, Match{IIF: d})
		}
	}
	from := a.fromRemote()
	if len(a.Remote) <= few {
		from = nil
		for _, n := range a.Remote {
			from = append(from, Match{SAddr: n})
		}
	}
	// To compare the name of a device takes longer than to compare a source or to find it in a
	// hash, and less time than to find it in a set of intervals. What arrives from Remote would
	// need the lookup and the name. So the names come first, unless notRemote accepts nothing by
	// the network around Remote: then all packets of the node would be compared with names, in
	// place of a lookup in a hash.
	intervals, _ := a.RemoteSets()
	a.notRemote(func(m Match) { r.accept(AntispoofIn, m) })
	_, beyond := a.beyondRemote()
	early := beyond || intervals != nil
	if early {
		usual(AntispoofIn)
	}
	for _, m := range from {
		r.jump(AntispoofForeign, AntispoofIn, m)
	}
	if !early {
		usual(AntispoofForeign)
	}
	var others []Match
	for _, d := range a.In {
		others = append(others, Match{IIFNot: d})
	}
	if len(a.Protected) == 0 {
		r.jump(AntispoofNotThrough, AntispoofForeign, others...)
		return
	}
	r.jump(AntispoofBeside, AntispoofForeign, others...)
	for _, n := range a.usuallyFirst(a.Protected) {
		r.jump(AntispoofNotThrough, AntispoofBeside, Match{DAddr: n})
	}
}

// notRemote calls pass with matches of sources that need no lookup to see that they are not in
// Remote: pods of this cluster, and most nodes.
func (a Antispoof) notRemote(pass func(Match)) {
	if len(a.Remote) <= few {
		return
	}
	for _, n := range a.Usually[:min(len(a.Usually), few)] {
		if !slices.ContainsFunc(a.Remote, n.Overlaps) {
			pass(Match{SAddr: n})
		}
	}
	if n, ok := a.beyondRemote(); ok {
		pass(Match{SAddrNot: n})
	}
}

// beyondRemote returns the smallest network around Remote. It is false if there is nothing outside,
// or if Remote are few.
func (a Antispoof) beyondRemote() (netip.Prefix, bool) {
	if len(a.Remote) <= few {
		return netip.Prefix{}, false
	}
	n := around(a.Remote)
	return n, n.Bits() > 0
}

// fromRemote returns the matches of packets from Remote.
func (a Antispoof) fromRemote() (out []Match) {
	remote, masked := a.RemoteSets()
	if len(remote) > 0 {
		out = append(out, Match{SAddrIn: AntispoofSetRemote})
	}
	for _, bits := range masks(masked) {
		out = append(out, Match{MaskedBits: bits})
	}
	return out
}
