package dataplane

import (
	"fmt"
	"slices"
	"strings"
)

// An Owner identifies the kernel objects of one agent, which only that agent may
// remove. The agents of a node share its kernel. Each sees only its own objects, so
// that it never changes, removes or uses objects of other agents or of other programs.
//
// Routes, policy rules and next hops are the owner's if they have its Protocol, whatever their
// numbers. Sets, chains and tables of nftables have names that nobody else uses. A device is the
// owner's if it has one of its names and is of the kind that the name stands for; then all
// addresses, neighbours and FDB entries of the device are, too.
type Owner struct {
	Name     string
	Devices  []string // exact names
	Prefixes []string // name prefixes of devices of kind vxlan
	// Prefix of chains and sets, empty if the owner has none; the owner with the longest matching
	// prefix has them.
	Chains    string
	Antispoof string // nftables table that drops forged packets, families ip and ip6
	// Nftables are the tables of nftables, Antispoof among them.
	Nftables []Nftable
	Protocol uint8 // of routes, rules and next hops: "ip route" shows it as "proto N"
	Tables   Range // routing tables
	// Former are the routing tables of versions before FirstTable, from which the owner removes its
	// routes.
	Former     Range
	IDs        Ranges // of next hops and groups
	Priorities Ranges // of policy rules
	// Main specifies that the owner also has the routes of Protocol in the main table.
	Main bool
}

// Nftable is the family and the name of a table of nftables.
type Nftable struct{ Family, Name string }

// OwnsDevice reports whether the device belongs to o.
func (o Owner) OwnsDevice(name string) bool {
	return slices.Contains(o.Devices, name) ||
		slices.ContainsFunc(o.Prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// NodeDevices returns the names of all devices that our agents create on nodes. A name may end in
// DeviceAny.
func NodeDevices() (names []string) {
	for _, o := range NodeOwners() {
		names = append(names, o.DeviceNames()...)
	}
	return names
}

// DeviceNames returns the names of the owner's devices; one that ends in DeviceAny stands for all
// devices with the prefix.
func (o Owner) DeviceNames() []string {
	names := slices.Clone(o.Devices)
	for _, p := range o.Prefixes {
		names = append(names, p+DeviceAny)
	}
	return names
}

// OwnsChain reports whether the chain or set belongs to o.
func (o Owner) OwnsChain(name string) bool {
	if o.Chains == "" || !strings.HasPrefix(name, o.Chains) {
		return false
	}
	for _, other := range Owners() {
		if len(other.Chains) > len(o.Chains) && strings.HasPrefix(name, other.Chains) {
			return false
		}
	}
	return true
}

// Range is an inclusive range of numbers.
type Range struct{ Min, Max uint32 }

// Has reports whether n is in r.
func (r Range) Has(n uint32) bool { return r.Min <= n && n <= r.Max }

// Ranges are several ranges of numbers.
type Ranges []Range

// Has reports whether n is in one of the ranges.
func (rs Ranges) Has(n uint32) bool {
	return slices.ContainsFunc(rs, func(r Range) bool { return r.Has(n) })
}

// String returns the ranges as "5, 10-19".
func (rs Ranges) String() string {
	var out []string
	for _, r := range rs {
		if r.Min == r.Max {
			out = append(out, fmt.Sprint(r.Min))
			continue
		}
		out = append(out, fmt.Sprintf("%d-%d", r.Min, r.Max))
	}
	return strings.Join(out, ", ")
}
