//go:build linux

package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"subctl/dataplane"

	"github.com/google/nftables"
	"github.com/google/nftables/userdata"
)

// sources is the owner's table of nftables: everything in it is ours. Each rule has a
// comment with the network that it is for, which identifies the plan; comments cost packets
// nothing.
type sources struct{ *Host }

const (
	sourcesSet = "remote"
	// sourcesNeed names the kernel features that the translation of sources requires.
	sourcesNeed = "nftables with NAT"
)

func (s sources) list() ([]dataplane.Object, error) {
	return s.listTable(s.owner.NFTable, &s.ipt.sourcesSeen, func() (dataplane.Object, error) { return s.read() })
}

// put adds and removes single elements if nothing else has changed, or else recreates the
// whole table: either way in one transaction. Then it marks the connections from new networks that exist.
func (s sources) put(_, want dataplane.Object) error {
	w := want.(dataplane.Sources)
	t := &nftables.Table{Family: nftables.TableFamilyIPv4, Name: w.Table}
	set := &nftables.Set{Table: t, Name: sourcesSet, KeyType: nftables.TypeIPAddr, Interval: true}
	tx, err := transaction()
	if err != nil {
		return fmt.Errorf("changing table %s: %w", w.Table, err)
	}
	have, err := s.read()
	same := have
	same.Remote = w.Remote
	if err == nil && same.Equal(w) && !slices.Contains(have.Remote, netip.Prefix{}) {
		if err := errors.Join(
			elements(dataplane.Without(have.Remote, w.Remote), func(e []nftables.SetElement) error { return tx.SetDeleteElements(set, e) }),
			elements(dataplane.Without(w.Remote, have.Remote), func(e []nftables.SetElement) error { return tx.SetAddElements(set, e) }),
		); err != nil {
			return fmt.Errorf("changing table %s: %w", w.Table, err)
		}
		if err := s.flushTable(tx, "changing", w.Table, sourcesNeed); err != nil {
			return err
		}
		return s.markDirect(dataplane.Without(w.Remote, have.Remote), w.Announced)
	}
	tx.AddTable(t) // so that there is one to remove
	tx.DelTable(t)
	tx.AddTable(t)
	chains := map[string]*nftables.Chain{}
	for _, name := range dataplane.SourcesChains {
		c := &nftables.Chain{Name: name, Table: t}
		if name != dataplane.SourcesMarking {
			priority := nftables.ChainPriority(dataplane.SourcesPriority)
			c.Type = nftables.ChainTypeNAT
			c.Hooknum = nftHooks[name]
			c.Priority = &priority
		}
		chains[name] = tx.AddChain(c)
	}
	err = errors.Join(tx.AddSet(set, nil),
		elements(w.Remote, func(e []nftables.SetElement) error { return tx.SetAddElements(set, e) }))
	if err != nil {
		return fmt.Errorf("adding table %s: %w", w.Table, err)
	}
	for _, r := range w.Rules() {
		tx.AddRule(&nftables.Rule{
			Table: t, Chain: chains[r.Chain], UserData: userdata.AppendString(nil, userdata.TypeComment, r.Comment()),
			Exprs: sourcesExprs(r, set),
		})
	}
	if err := s.flushTable(tx, "adding", w.Table, sourcesNeed); err != nil {
		return err
	}
	return s.markDirect(w.Remote, w.Announced)
}

func (s sources) del(old dataplane.Object) error {
	return s.delTable(family4, old.(dataplane.Sources).Table, sourcesNeed)
}
