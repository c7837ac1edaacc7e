//go:build linux

package kernel

import (
	"net/netip"
	"slices"

	"subctl/dataplane"

	"github.com/google/nftables"
)

// This file has the sets of Antispoof and their elements.

// setsOf returns all sets that the table may have, by name.
func setsOf(table *nftables.Table) map[string]*nftables.Set {
	out := map[string]*nftables.Set{dataplane.AntispoofSetInner: {
		Table: table, Name: dataplane.AntispoofSetInner,
		KeyType: nftables.MustConcatSetType(nftables.TypeIPAddr, nftables.TypeIPAddr, nftables.TypeIPAddr),
	}, dataplane.AntispoofSetMasked: {
		Table:   table,
		Name:    dataplane.AntispoofSetMasked,
		KeyType: nftables.MustConcatSetType(nftables.TypeIPAddr, nftables.TypeIPAddr),
	}, dataplane.AntispoofSetEcho: {
		Table:   table,
		Name:    dataplane.AntispoofSetEcho,
		KeyType: nftables.MustConcatSetType(nftables.TypeIPAddr, nftables.TypeIPAddr),
	}, dataplane.AntispoofSetPeers: {
		Table:    table,
		Name:     dataplane.AntispoofSetPeers,
		IsMap:    true,
		Interval: true,
		KeyType:  nftables.TypeIPAddr,
		DataType: nftables.TypeIPAddr,
	}, dataplane.AntispoofSetBehind: {
		Table: table, Name: dataplane.AntispoofSetBehind,
		KeyType: nftables.MustConcatSetType(nftables.TypeIPAddr, nftables.TypeIPAddr, nftables.TypeIPAddr),
	}, dataplane.AntispoofSetWays: {
		Table:      table,
		Name:       dataplane.AntispoofSetWays,
		Dynamic:    true,
		HasTimeout: true,
		Timeout:    dataplane.AntispoofWays,
		KeyType:    nftables.MustConcatSetType(nftables.TypeIPAddr, nftables.TypeIFIndex),
	}, dataplane.AntispoofSetKnown: {
		Table:      table,
		Name:       dataplane.AntispoofSetKnown,
		Dynamic:    true,
		HasTimeout: true,
		Timeout:    dataplane.AntispoofWays,
		KeyType: nftables.MustConcatSetType(nftables.TypeIPAddr, nftables.TypeIFIndex, nftables.TypeIPAddr,
			nftables.TypeIPAddr),
	}, dataplane.AntispoofSetEchoes: {
		Table:      table,
		Name:       dataplane.AntispoofSetEchoes,
		Dynamic:    true,
		HasTimeout: true,
		Timeout:    dataplane.AntispoofEchoes,
		KeyType:    nftables.TypeIPAddr,
	}, dataplane.AntispoofSetClusters: {
		Table: table, Name: dataplane.AntispoofSetClusters, Interval: true, Counter: true, KeyType: nftables.TypeIPAddr,
	}}
	for _, name := range []string{dataplane.AntispoofSetEnds, dataplane.AntispoofSetRemote, dataplane.AntispoofSetOwn} {
		out[name] = &nftables.Set{Table: table, Name: name, Interval: true, KeyType: nftables.TypeIPAddr}
	}
	return out
}

// setNames returns the names of the sets that have elements, and of the sets to which packets add
// them.
func setNames(a dataplane.Antispoof) []string {
	names := []string{dataplane.AntispoofSetWays, dataplane.AntispoofSetEchoes}
	if len(a.Inner) > 0 {
		names = append(names, dataplane.AntispoofSetInner, dataplane.AntispoofSetKnown)
	}
	if len(a.Clusters) > 0 {
		names = append(names, dataplane.AntispoofSetClusters)
	}
	if len(a.Echoing) > 0 {
		names = append(names, dataplane.AntispoofSetEcho)
	}
	if len(a.Behind) > 0 {
		names = append(names, dataplane.AntispoofSetPeers, dataplane.AntispoofSetBehind)
	}
	if _, masked := a.RemoteSets(); len(masked) > 0 {
		names = append(names, dataplane.AntispoofSetMasked)
	}
	for _, set := range a.Sets() {
		names = append(names, set.Name)
	}
	return names
}

// missing returns the names that are not among others.
func missing(names, others []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(others, name) })
}

// maskedElements calls do with elements of the set "masked", some at a time.
func maskedElements(nets []netip.Prefix, do func([]nftables.SetElement) error) error {
	for batch := range slices.Chunk(nets, nftBatch) {
		var out []nftables.SetElement
		for _, n := range batch {
			out = append(out,
				nftables.SetElement{Key: slices.Concat(n.Addr().AsSlice(), dataplane.NetMask(n.Bits()).AsSlice())})
		}
		if err := do(out); err != nil {
			return err
		}
	}
	return nil
}

// echoElements calls do with elements of the set "echo", some at a time.
func echoElements(ips []netip.Addr, do func([]nftables.SetElement) error) error {
	for batch := range slices.Chunk(ips, nftBatch) {
		var out []nftables.SetElement
		for _, ip := range batch {
			out = append(out, nftables.SetElement{Key: slices.Concat(ip.AsSlice(), ip.AsSlice())})
		}
		if err := do(out); err != nil {
			return err
		}
	}
	return nil
}

// innerElements calls do with elements of the set "inner", some at a time.
func innerElements(inner []dataplane.InnerSource, do func([]nftables.SetElement) error) error {
	for batch := range slices.Chunk(inner, nftBatch) {
		var out []nftables.SetElement
		for _, s := range batch {
			out = append(out, nftables.SetElement{
				Key: slices.Concat(s.Outer.AsSlice(), s.Net.Addr().AsSlice(),
					dataplane.NetMask(s.Net.Bits()).AsSlice()),
			})
		}
		if err := do(out); err != nil {
			return err
		}
	}
	return nil
}
