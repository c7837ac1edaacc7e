//go:build linux

package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"subctl/dataplane"

	"github.com/google/nftables"
	"github.com/google/nftables/userdata"
)

// antispoofs is the owner's nftables table of Antispoof: everything in it is ours. Each rule has
// a comment with its place among the rules, the number of sets and chains of the table, and the
// fingerprint of the plan.
type antispoofs struct{ *Host }

// antispoofsNeed is what the kernel must have.
const antispoofsNeed = "nftables with fib expressions and with intervals in concatenations (Linux 5.6)"

func (s antispoofs) list() ([]dataplane.Object, error) {
	return s.listTable(s.owner.Antispoof, &s.ipt.antispoofSeen, func() (dataplane.Object, error) { return s.read() })
}

// put adds and removes single elements if the rules have not changed, or else recreates the
// whole table: either way in one transaction.
func (s antispoofs) put(_, want dataplane.Object) error {
	w := want.(dataplane.Antispoof)
	tx, err := transaction()
	if err != nil {
		return fmt.Errorf("changing table %s: %w", w.Table, err)
	}
	table := &nftables.Table{Family: nftables.TableFamilyIPv4, Name: w.Table}
	have, err := s.read()
	if err == nil && have.Fingerprint() == w.Fingerprint() && !slices.Contains(have.Inner, dataplane.InnerSource{}) &&
		!slices.ContainsFunc(have.Sets(), func(set dataplane.Set) bool { return slices.Contains(set.Members, netip.Prefix{}) }) {
		err = s.alter(tx, table, have, w)
	} else {
		err = s.create(tx, table, w)
	}
	if err != nil {
		return fmt.Errorf("changing table %s: %w", w.Table, err)
	}
	return s.flushTable(tx, "changing", w.Table, antispoofsNeed)
}

// alter adds and removes single elements.
func (s antispoofs) alter(tx *nftables.Conn, table *nftables.Table, have, want dataplane.Antispoof) error {
	sets := setsOf(table)
	inner := sets[dataplane.AntispoofSetInner]
	errs := []error{
		innerElements(without(have.Inner, want.Inner), func(e []nftables.SetElement) error { return tx.SetDeleteElements(inner, e) }),
		innerElements(without(want.Inner, have.Inner), func(e []nftables.SetElement) error { return tx.SetAddElements(inner, e) }),
	}
	for name, nets := range map[string][2][]netip.Prefix{
		dataplane.AntispoofSetEnds:   {have.Ends, want.Ends},
		dataplane.AntispoofSetRemote: {have.Remote, want.Remote},
		dataplane.AntispoofSetOwn:    {have.Own, want.Own},
	} {
		errs = append(errs,
			elements(without(nets[0], nets[1]), func(e []nftables.SetElement) error { return tx.SetDeleteElements(sets[name], e) }),
			elements(without(nets[1], nets[0]), func(e []nftables.SetElement) error { return tx.SetAddElements(sets[name], e) }))
	}
	return errors.Join(errs...)
}

// create replaces the table.
func (s antispoofs) create(tx *nftables.Conn, table *nftables.Table, w dataplane.Antispoof) error {
	tx.AddTable(table) // so that there is one to remove
	tx.DelTable(table)
	tx.AddTable(table)
	sets, all := setsOf(table), w.Sets()
	holds := len(all) + len(w.Chains())
	if len(w.Inner) > 0 {
		holds++
		inner := sets[dataplane.AntispoofSetInner]
		add := func(e []nftables.SetElement) error { return tx.SetAddElements(inner, e) }
		if err := errors.Join(tx.AddSet(inner, nil), innerElements(w.Inner, add)); err != nil {
			return err
		}
	}
	for _, one := range all {
		set := sets[one.Name]
		add := func(e []nftables.SetElement) error { return tx.SetAddElements(set, e) }
		if err := errors.Join(tx.AddSet(set, nil), elements(one.Members, add)); err != nil {
			return err
		}
	}
	var chains []*nftables.Chain
	for _, name := range w.Chains() {
		chains = append(chains, addChain(tx, table, name))
	}
	place, rules := 0, w.Rules()
	for _, chain := range chains { // in the order in which the kernel lists them
		for _, r := range rules {
			if r.Chain != chain.Name {
				continue
			}
			place++
			tx.AddRule(&nftables.Rule{
				Table: table, Chain: chain, Exprs: exprs(r, sets),
				UserData: userdata.AppendString(nil, userdata.TypeComment, antispoofComment(place, len(rules), holds, w.Fingerprint())),
			})
		}
	}
	return nil
}

// antispoofComment returns the comment of rule number place of all, in a table that holds some
// sets and chains.
func antispoofComment(place, all, holds int, fingerprint string) string {
	return fmt.Sprintf("%d/%d %d %s", place, all, holds, fingerprint)
}

func addChain(tx *nftables.Conn, table *nftables.Table, name string) *nftables.Chain {
	hook, priority := dataplane.AntispoofHook(name)
	if hook == "" {
		return tx.AddChain(&nftables.Chain{Name: name, Table: table})
	}
	at := nftables.ChainPriority(priority)
	return tx.AddChain(&nftables.Chain{Name: name, Table: table, Type: nftables.ChainTypeFilter, Hooknum: nftHooks[hook], Priority: &at})
}

var nftHooks = map[string]*nftables.ChainHook{
	"prerouting": nftables.ChainHookPrerouting, "input": nftables.ChainHookInput,
	"forward": nftables.ChainHookForward, "postrouting": nftables.ChainHookPostrouting,
}

// setsOf returns all sets that the table may have, by name.
func setsOf(table *nftables.Table) map[string]*nftables.Set {
	out := map[string]*nftables.Set{dataplane.AntispoofSetInner: {
		Table: table, Name: dataplane.AntispoofSetInner, Interval: true, Concatenation: true,
		KeyType: nftables.MustConcatSetType(nftables.TypeIPAddr, nftables.TypeIPAddr),
	}}
	for _, name := range []string{dataplane.AntispoofSetEnds, dataplane.AntispoofSetRemote, dataplane.AntispoofSetOwn} {
		out[name] = &nftables.Set{Table: table, Name: name, Interval: true, KeyType: nftables.TypeIPAddr}
	}
	return out
}

func (s antispoofs) del(old dataplane.Object) error {
	return s.delTable(old.(dataplane.Antispoof).Table, antispoofsNeed)
}

// innerElements calls do with elements of the set "inner", some at a time. The key of each is the
// outer source and the first address of the network; the end of the key has the last address.
func innerElements(inner []dataplane.InnerSource, do func([]nftables.SetElement) error) error {
	for batch := range slices.Chunk(inner, nftBatch/2) {
		var out []nftables.SetElement
		for _, s := range batch {
			outer, first := s.Outer.AsSlice(), s.Net.Addr().As4()
			last := binary.BigEndian.Uint32(first[:]) + uint32(1<<(32-s.Net.Bits())-1)
			out = append(out, nftables.SetElement{
				Key:    append(slices.Clone(outer), first[:]...),
				KeyEnd: binary.BigEndian.AppendUint32(slices.Clone(outer), last),
			})
		}
		if err := do(out); err != nil {
			return err
		}
	}
	return nil
}
