package globalnet

import (
	"net/netip"
	"slices"
)

// This file is about which addresses objects hold before an allocation, and what the next one has
// to know.

// claim finds out who holds which addresses: first those that have held them before, so that who
// edits a status takes nothing away.
func (a *allocation) claim() {
	holder := make(map[int]int, a.requests.Len())
	for _, again := range []bool{true, false} {
		for _, r := range a.order {
			uid := a.requests.At(r).UID
			for _, addr := range a.status(r) {
				i, ok := a.pool.index(addr)
				if (ok && a.before.holder[i] == uid) != again {
					continue
				}
				if !ok {
					a.grants[r].Lost = append(a.grants[r].Lost, Loss{Addr: addr})
					continue
				}
				if other, taken := holder[i]; taken {
					if other != r {
						a.grants[r].Lost = append(a.grants[r].Lost,
							Loss{Addr: addr, Holder: a.requests.At(other).object()})
					}
					continue
				}
				holder[i] = r
				a.used.add(i)
				a.taken.add(i)
				a.own[r] = append(a.own[r], i)
			}
		}
	}
	for _, own := range a.own {
		slices.Sort(own)
	}
	for r := range a.own {
		for _, addrs := range a.written(r) {
			a.cast(r, addrs)
		}
		a.cast(r, a.requests.At(r).Held)
	}
}

// status returns the addresses that the status of an object has, as far as is known.
func (a *allocation) status(r int) []netip.Addr {
	if written := a.written(r); len(written) > 0 {
		return written[len(written)-1]
	}
	return a.requests.At(r).Held
}

// written returns what may have been written to the status of an object since the version in the
// cache.
func (a *allocation) written(r int) [][]netip.Addr {
	if len(a.before.pending) == 0 {
		return nil
	}
	of := a.requests.At(r)
	if p := a.before.pending[of.UID]; p.version == of.Version {
		return p.written
	}
	return nil
}

// cast notes that a status may have addresses, if nobody holds them.
func (a *allocation) cast(r int, addrs []netip.Addr) {
	for _, addr := range addrs {
		if i, ok := a.pool.index(addr); ok && !a.used.has(i) {
			a.shadow[i] = r
			a.taken.add(i)
		}
	}
}

// memory returns what the next allocation has to know.
func (a *allocation) memory() *Memory {
	m := &Memory{
		pool:    a.pool,
		used:    a.used,
		shadow:  a.shadow,
		resting: a.resting,
		pending: map[string]pending{},
		holder:  make(map[int]string, a.requests.Len()),
	}
	for r := range a.own {
		req := a.requests.At(r)
		for _, addr := range a.grants[r].Addrs {
			i, _ := a.pool.index(addr)
			m.holder[i] = req.UID
		}
		written := a.written(r)
		now := a.grants[r].Addrs
		if !slices.Equal(a.status(r), now) {
			written = append(slices.Clip(written), now)
		}
		if len(written) > 0 {
			m.pending[req.UID] = pending{version: req.Version, written: written}
		}
	}
	return m
}
