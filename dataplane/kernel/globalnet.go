//go:build linux

package kernel

import (
	"fmt"

	"subctl/dataplane"

	"github.com/google/nftables"
	"github.com/google/nftables/userdata"
)

// globalnets is the owner's nftables table of Globalnet: everything in it is ours. Each rule has
// the comment that ruleComment returns.
type globalnets struct{ *Host }

// globalnetsNeed names the kernel features that globalnet requires.
const globalnetsNeed = "nftables with NAT, and the expressions hash and masq"

// list returns the table. Elements that are gone count as present until their connections have
// ended, so that Sync tries again.
func (s globalnets) list() ([]dataplane.Object, error) {
	objects, err := s.table()
	if len(objects) != 1 || s.ipt.globalnetLeft.Table == "" {
		return objects, err
	}
	return []dataplane.Object{withFlowsOf(objects[0].(dataplane.Globalnet), s.ipt.globalnetLeft)}, err
}

// table returns the table as the kernel has it.
func (s globalnets) table() ([]dataplane.Object, error) {
	return s.listTable(s.owner.Globalnet, &s.ipt.globalnetSeen, func() (dataplane.Object, error) { return s.read() })
}

// put changes single elements of maps if the rules are the same. Otherwise it replaces the whole
// table. Either is one transaction, so no packet passes without the rules of one or the other; the
// connections of before keep their translation.
//
// Then it deletes the conntrack entries of what is gone, as kube-proxy does: see endFlows.
func (s globalnets) put(_, want dataplane.Object) error {
	w := want.(dataplane.Globalnet)
	have, whole := s.intact()
	if err := s.write(have, whole, w); err != nil || !whole {
		return err
	}
	if s.ipt.globalnetLeft.Table != "" {
		have = withFlowsOf(have, s.ipt.globalnetLeft)
	}
	s.ipt.globalnetLeft = dataplane.Globalnet{}
	err := s.endFlows(have, w)
	if err != nil {
		s.ipt.globalnetLeft = have
	}
	return err
}

// write writes the table. whole reports whether have can be changed in place.
func (s globalnets) write(have dataplane.Globalnet, whole bool, w dataplane.Globalnet) error {
	if whole && have.Fingerprint() == w.Fingerprint() {
		err := s.change(w.Table,
			func(tx *nftables.Conn, table *nftables.Table) error { return alterMaps(tx, mapsOf(table), have, w) })
		if err == nil {
			s.ipt.globalnetSeen.became(w, s.conn.Generation())
			return nil
		}
	}
	err := s.change(w.Table, func(tx *nftables.Conn, table *nftables.Table) error {
		tx.AddTable(table) // so that there is one to remove
		tx.DelTable(table)
		tx.AddTable(table)
		maps := mapsOf(table)
		for _, name := range dataplane.GlobalnetMaps() {
			if err := tx.AddSet(maps[name], nil); err != nil {
				return err
			}
		}
		chains := addGlobalnetChains(tx, table)
		addGlobalnetRules(tx, maps, w, chains)
		return alterMaps(tx, maps, dataplane.Globalnet{}, w)
	})
	if err == nil {
		s.ipt.globalnetSeen.became(w, s.conn.Generation())
	}
	return err
}

// intact returns the table as it is, the zero Globalnet if there is none. It reports whether that
// can be changed, or else must be replaced.
func (s globalnets) intact() (dataplane.Globalnet, bool) {
	seen, err := s.table()
	if err != nil || len(seen) != 1 {
		return dataplane.Globalnet{}, err == nil
	}
	have := seen[0].(dataplane.Globalnet)
	return have, have.Seen != damaged
}

// change applies to a table what do adds to a transaction.
func (s globalnets) change(table string, do func(*nftables.Conn, *nftables.Table) error) error {
	tx, err := transaction()
	if err == nil {
		err = do(tx, &nftables.Table{Family: nftables.TableFamilyIPv4, Name: table})
	}
	if err != nil {
		return fmt.Errorf("changing table %s: %w", table, err)
	}
	return s.flushTable(tx, "changing", table, globalnetsNeed)
}

// del removes the table, and ends all connections that it translated: the node is no gateway any
// more, or the cluster has left. If ending them fails, they end when nobody sends any more: no
// table shows that they are left.
func (s globalnets) del(old dataplane.Object) error {
	had := old.(dataplane.Globalnet)
	if err := s.delTable(family4, had.Table, globalnetsNeed); err != nil {
		return err
	}
	s.ipt.globalnetLeft = dataplane.Globalnet{}
	return s.endFlows(had, dataplane.Globalnet{Pods: had.Pods})
}

// addGlobalnetRules adds all rules to the chains.
func addGlobalnetRules(
	tx *nftables.Conn,
	maps map[string]*nftables.Set,
	w dataplane.Globalnet,
	chains map[string]*nftables.Chain,
) {
	table := maps[dataplane.GlobalnetOwn].Table
	rules := w.Rules()
	place := map[string]int{}
	for _, r := range rules {
		place[r.Chain]++
		tx.AddRule(&nftables.Rule{
			Table: table, Chain: chains[r.Chain], Exprs: globalnetExprs(r, maps),
			UserData: userdata.AppendString(nil, userdata.TypeComment,
				ruleComment(place[r.Chain], len(rules), len(chains)+len(maps), w.Fingerprint())),
		})
	}
}

// addGlobalnetChains adds the chains, without rules: elements of a map refer to some of them.
func addGlobalnetChains(tx *nftables.Conn, table *nftables.Table) map[string]*nftables.Chain {
	out := map[string]*nftables.Chain{}
	for _, name := range dataplane.GlobalnetChains() {
		c := &nftables.Chain{Name: name, Table: table}
		if typ, hook, at := dataplane.GlobalnetHook(name); hook != "" {
			priority := nftables.ChainPriority(at)
			c.Type = nftables.ChainType(typ)
			c.Hooknum = nftHooks[hook]
			c.Priority = &priority
		}
		out[name] = tx.AddChain(c)
	}
	return out
}

var nftHooks = map[string]*nftables.ChainHook{
	"prerouting":  nftables.ChainHookPrerouting,
	"input":       nftables.ChainHookInput,
	"forward":     nftables.ChainHookForward,
	"output":      nftables.ChainHookOutput,
	"postrouting": nftables.ChainHookPostrouting,
}
