//go:build linux

package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"subctl/dataplane"
	"subctl/dataplane/kernel/netlink"

	"github.com/google/nftables"
	"github.com/google/nftables/userdata"
)

// antispoofs are the owner's nftables tables of Antispoof, one of family ip and, for AntispoofIPv6,
// one of family ip6: everything in them is ours. Each rule has the comment that ruleComment
// returns.
type antispoofs struct{ *Host }

// antispoofsNeed names the kernel features that antispoofing requires.
const antispoofsNeed = "nftables with fib expressions"

// list returns the table. While there is something left of a change, the table counts as one that
// no plan has, so that Sync tries again.
func (s antispoofs) list() ([]dataplane.Object, error) {
	objects, err := s.table()
	if len(objects) != 1 || !s.ipt.antispoofLeft.any() {
		return objects, err
	}
	o := objects[0].(dataplane.Antispoof)
	o.Seen = "unfinished"
	return []dataplane.Object{o}, err
}

// table returns the table as the kernel has it. That IPv6 comes or goes changes nothing in
// nftables, and what must be there.
func (s antispoofs) table() ([]dataplane.Object, error) {
	if has := hasIPv6(); has != s.ipt.hadIPv6 {
		s.ipt.antispoofSeen = nftSeen{}
		s.ipt.hadIPv6 = has
	}
	return s.listTable(s.owner.Antispoof, &s.ipt.antispoofSeen, func() (dataplane.Object, error) { return s.read() })
}

// put changes the table. A table that is missing or damaged is created anew, in one transaction,
// and so is a table that cannot be changed in place: a set that is empty may be one of an older
// agent or of another program, of another type.
//
// Then it deletes the conntrack entries of networks that have left or are new, and what packets
// have added to the set of known senders since the transaction began. It does not if there was no
// whole table: nothing tells which these are. What fails is left for the next time.
func (s antispoofs) put(_, want dataplane.Object) error {
	w := want.(dataplane.Antispoof)
	have, ok := s.intact()
	if err := s.write(have, ok, w); err != nil {
		return err
	}
	left := &s.ipt.antispoofLeft
	if ok {
		left.known = left.known || forgets(have, w)
		left.ended = append(left.ended, w.Ended(have)...)
		slices.SortFunc(left.ended, netip.Prefix.Compare)
		left.ended = slices.Compact(left.ended)
	}
	return left.finish(s, w)
}

// antispoofLeft is what is left of a change after the table has been written.
type antispoofLeft struct {
	known bool           // whether the set of known senders is to be emptied
	ended []netip.Prefix // networks whose connections end
}

func (l *antispoofLeft) any() bool { return l.known || len(l.ended) > 0 }

// finish does what is left. The table is w.
func (l *antispoofLeft) finish(s antispoofs, w dataplane.Antispoof) error {
	if l.known && len(w.Inner) > 0 {
		forget := func(tx *nftables.Conn, table *nftables.Table) error {
			tx.FlushSet(setsOf(table)[dataplane.AntispoofSetKnown])
			return nil
		}
		if err := s.change(w.Table, forget); err != nil {
			return err
		}
		s.ipt.antispoofSeen.became(w, s.conn.Generation())
	}
	l.known = false
	if err := s.endFlows(l.ended, slices.Concat(w.Protected, w.Local)); err != nil {
		return err
	}
	l.ended = nil
	return nil
}

// write writes the table. whole reports whether it can be changed in place.
func (s antispoofs) write(have dataplane.Antispoof, whole bool, w dataplane.Antispoof) error {
	fingerprint, lacks := strings.CutSuffix(have.Fingerprint(), lacksIPv6)
	switch {
	case !whole:
	case fingerprint == w.Fingerprint():
		err := s.change(w.Table, func(tx *nftables.Conn, table *nftables.Table) error {
			if lacks {
				if err := s.putIPv6(tx, w); err != nil {
					return err
				}
			}
			return alter(tx, setsOf(table), have, w)
		})
		if err == nil {
			s.ipt.antispoofSeen.became(w, s.conn.Generation())
			return nil
		}
	case s.replace(have, w) == nil:
		return nil
	}
	return s.change(w.Table, func(tx *nftables.Conn, table *nftables.Table) error {
		if err := s.putIPv6(tx, w); err != nil {
			return err
		}
		return create(tx, table, w)
	})
}

// intact returns the table as it was observed, or as it is if nftables has changed since. It
// reports whether there is a table that can be changed in place: with whole rules, and with no
// elements that no plan has.
func (s antispoofs) intact() (dataplane.Antispoof, bool) {
	seen, err := s.table()
	if err != nil || len(seen) != 1 {
		return dataplane.Antispoof{}, false
	}
	have := seen[0].(dataplane.Antispoof)
	foreign := slices.Contains(have.Inner, dataplane.InnerSource{}) ||
		slices.ContainsFunc(have.Clusters, func(n dataplane.ClusterNet) bool { return !n.Net.IsValid() }) ||
		slices.Contains(have.Remote, netip.Prefix{}) || slices.Contains(have.Echoing, netip.Addr{}) ||
		slices.Contains(have.Behind, dataplane.PeerNet{}) ||
		slices.ContainsFunc(have.Sets(),
			func(set dataplane.Set) bool { return slices.Contains(set.Members, netip.Prefix{}) })
	return have, have.Seen != damaged && !foreign
}

// replace replaces the rules, in one transaction with the elements that differ. Until Linux 6.17
// that would drop packets if one of the sets had intervals in concatenations: their elements count
// only after the rules do (nft_pipapo_commit in net/netfilter/nft_set_pipapo.c).
func (s antispoofs) replace(have, want dataplane.Antispoof) error {
	return s.change(want.Table, func(tx *nftables.Conn, table *nftables.Table) error {
		tx.FlushTable(table)
		for _, name := range missing(dataplane.AntispoofChains, want.Chains()) {
			switch _, _, err := s.tableChain(family4, table.Name, name); {
			case err == nil:
				tx.DelChain(&nftables.Chain{Table: table, Name: name})
			case !netlink.Gone(err):
				return err
			}
		}
		sets := setsOf(table)
		for _, name := range missing(setNames(want), setNames(have)) {
			if err := tx.AddSet(sets[name], nil); err != nil {
				return err
			}
		}
		for _, name := range setNames(want) {
			// an older agent has given it a size: see AntispoofWaysSize
			if sets[name].Dynamic && slices.Contains(setNames(have), name) {
				tx.DelSet(sets[name])
				if err := tx.AddSet(sets[name], nil); err != nil {
					return err
				}
			}
		}
		if err := alter(tx, sets, have, want); err != nil {
			return err
		}
		for _, name := range missing(setNames(have), setNames(want)) {
			tx.DelSet(sets[name])
		}
		addRules(tx, table, want)
		return s.putIPv6(tx, want)
	})
}

// change applies to a table what do adds to a transaction.
func (s antispoofs) change(table string, do func(*nftables.Conn, *nftables.Table) error) error {
	tx, err := transaction()
	if err == nil {
		err = do(tx, &nftables.Table{Family: nftables.TableFamilyIPv4, Name: table})
	}
	if err != nil {
		return fmt.Errorf("changing table %s: %w", table, err)
	}
	return s.flushTable(tx, "changing", table, antispoofsNeed)
}

// forgets reports whether a change removes a network from which packets may come that are
// remembered.
func forgets(have, want dataplane.Antispoof) bool {
	return len(want.Inner) > 0 && len(dataplane.Without(have.Inner, want.Inner)) > 0
}

// alter adds and removes single elements.
func alter(tx *nftables.Conn, sets map[string]*nftables.Set, have, want dataplane.Antispoof) error {
	if forgets(have, want) {
		tx.FlushSet(sets[dataplane.AntispoofSetKnown])
	}
	inner := sets[dataplane.AntispoofSetInner]
	errs := []error{
		innerElements(dataplane.Without(have.Inner, want.Inner),
			func(e []nftables.SetElement) error { return tx.SetDeleteElements(inner, e) }),
		innerElements(dataplane.Without(want.Inner, have.Inner),
			func(e []nftables.SetElement) error { return tx.SetAddElements(inner, e) }),
	}
	clusters := sets[dataplane.AntispoofSetClusters]
	errs = append(
		errs,
		clusterElements(dataplane.Without(have.Clusters, want.Clusters),
			func(e []nftables.SetElement) error { return tx.SetDeleteElements(clusters, e) }),
		clusterElements(dataplane.Without(want.Clusters, have.Clusters),
			func(e []nftables.SetElement) error { return tx.SetAddElements(clusters, e) }),
	)
	haveRemote, haveMasked := have.RemoteSets()
	wantRemote, wantMasked := want.RemoteSets()
	masked := sets[dataplane.AntispoofSetMasked]
	errs = append(
		errs,
		maskedElements(dataplane.Without(haveMasked, wantMasked),
			func(e []nftables.SetElement) error { return tx.SetDeleteElements(masked, e) }),
		maskedElements(dataplane.Without(wantMasked, haveMasked),
			func(e []nftables.SetElement) error { return tx.SetAddElements(masked, e) }),
	)
	echo := sets[dataplane.AntispoofSetEcho]
	errs = append(
		errs,
		echoElements(dataplane.Without(have.Echoing, want.Echoing),
			func(e []nftables.SetElement) error { return tx.SetDeleteElements(echo, e) }),
		echoElements(dataplane.Without(want.Echoing, have.Echoing),
			func(e []nftables.SetElement) error { return tx.SetAddElements(echo, e) }),
	)
	errs = append(errs, alterPeers(tx, sets, have, want))
	for name, nets := range map[string][2][]netip.Prefix{
		dataplane.AntispoofSetEnds:   {have.Ends, want.Ends},
		dataplane.AntispoofSetRemote: {haveRemote, wantRemote},
		dataplane.AntispoofSetOwn:    {have.Own, want.Own},
	} {
		errs = append(
			errs,
			elements(dataplane.Without(nets[0], nets[1]),
				func(e []nftables.SetElement) error { return tx.SetDeleteElements(sets[name], e) }),
			elements(dataplane.Without(nets[1], nets[0]),
				func(e []nftables.SetElement) error { return tx.SetAddElements(sets[name], e) }),
		)
	}
	return errors.Join(errs...)
}

// create replaces the table.
func create(tx *nftables.Conn, table *nftables.Table, w dataplane.Antispoof) error {
	tx.AddTable(table) // so that there is one to remove
	tx.DelTable(table)
	tx.AddTable(table)
	sets := setsOf(table)
	for _, name := range setNames(w) {
		if err := tx.AddSet(sets[name], nil); err != nil {
			return err
		}
	}
	if err := alter(tx, sets, dataplane.Antispoof{}, w); err != nil {
		return err
	}
	addRules(tx, table, w)
	return nil
}

// addRules adds the chains of the table's family with all rules. What refers to a set does so by
// its name.
func addRules(tx *nftables.Conn, table *nftables.Table, w dataplane.Antispoof) {
	var chains []*nftables.Chain
	others := func(chain string) bool { return families[dataplane.AntispoofFamily(chain)] != table.Family }
	for _, name := range slices.DeleteFunc(w.Chains(), others) {
		chains = append(chains, addChain(tx, table, name))
	}
	rules := slices.DeleteFunc(w.Rules(), func(r dataplane.AntispoofRule) bool { return others(r.Chain) })
	sets := setsOf(table)
	holds := len(chains)
	if table.Family == family4 {
		holds += len(setNames(w))
	}
	for _, chain := range chains {
		place := 0
		for _, r := range rules {
			if r.Chain != chain.Name {
				continue
			}
			place++
			tx.AddRule(&nftables.Rule{
				Table: table, Chain: chain, Exprs: exprs(r, sets),
				UserData: userdata.AppendString(nil, userdata.TypeComment,
					ruleComment(place, len(rules), holds, w.Fingerprint())),
			})
		}
	}
}

func addChain(tx *nftables.Conn, table *nftables.Table, name string) *nftables.Chain {
	hook, priority := dataplane.AntispoofHook(name)
	if hook == "" {
		return tx.AddChain(&nftables.Chain{Name: name, Table: table})
	}
	at := nftables.ChainPriority(priority)
	return tx.AddChain(
		&nftables.Chain{
			Name:     name,
			Table:    table,
			Type:     nftables.ChainTypeFilter,
			Hooknum:  nftHooks[hook],
			Priority: &at,
		},
	)
}

var nftHooks = map[string]*nftables.ChainHook{
	"prerouting":  nftables.ChainHookPrerouting,
	"input":       nftables.ChainHookInput,
	"forward":     nftables.ChainHookForward,
	"output":      nftables.ChainHookOutput,
	"postrouting": nftables.ChainHookPostrouting,
}

func (s antispoofs) del(old dataplane.Object) error {
	table := old.(dataplane.Antispoof).Table
	err := errors.Join(s.delTable(family4, table, antispoofsNeed), s.delTable(family6, table, antispoofsNeed))
	if err == nil {
		s.ipt.antispoofLeft = antispoofLeft{}
	}
	return err
}
