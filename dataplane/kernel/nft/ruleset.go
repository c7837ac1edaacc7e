//go:build linux

package nft

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"

	"subctl/dataplane"
	"subctl/dataplane/kernel/netlink"

	"github.com/google/nftables"
	"github.com/google/nftables/userdata"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// rulesets are the owner's nftables tables whose rules are text: everything in them is ours. They
// are written by nft(8), and read over netlink. If nothing but elements of sets changes, they are
// written over netlink, too: nft(8) first reads all sets of intervals of the table
// (docs/adr/0051-nftables-is-text.md).
type rulesets struct{ *Tables }

const (
	setAnonymous = 0x1  // NFT_SET_ANONYMOUS, linux/netfilter/nf_tables.h
	setDynamic   = 0x20 // NFT_SET_EVAL
	setInterval  = 0x4  // NFT_SET_INTERVAL
	policyAccept = 1    // NF_ACCEPT, linux/netfilter.h
)

// inetHooks are the names of the hooks of families ip, ip6 and inet (enum nf_inet_hooks).
var inetHooks = []string{"prerouting", "input", "forward", "output", "postrouting"}

// nftFamilies are the families of tables.
var nftFamilies = map[string]uint8{"ip": uint8(family4), "ip6": uint8(family6), "inet": unix.NFPROTO_INET}

func (rulesets) Kinds() []dataplane.Kind { return []dataplane.Kind{dataplane.KindRuleset} }

func (s rulesets) List() (out []dataplane.Object, err error) {
	for _, t := range s.owner.Nftables {
		r, is, err := s.table(t)
		if err != nil {
			return nil, err
		}
		if w, ok := s.wanted[t]; ok && !is && !s.needs(t) {
			r = w
			is = true
		}
		if is {
			_, r.Unfinished = s.left[t]
			out = append(out, r)
		}
	}
	return out, nil
}

// needs reports whether a table has an effect: on a node that receives no IPv6 packets, or whose
// nftables has no tables for them, one for IPv6 has none, and counts as written.
func (s rulesets) needs(t dataplane.Nftable) bool {
	return t.Family != "ip6" || hasIPv6() && s.TablesOfIPv6()
}

// table returns a table, if it exists. Nothing is read if nothing in nftables has changed.
func (s rulesets) table(t dataplane.Nftable) (r dataplane.Ruleset, is bool, err error) {
	seen := s.seen[t]
	out, err := s.listTable(t.Name, &seen, func() (dataplane.Object, error) { return s.read(t) })
	s.seen[t] = seen
	if err != nil || len(out) == 0 {
		return r, false, err
	}
	return out[0].(dataplane.Ruleset), true, nil
}

// Put changes the table, and then the connections that depend on it. No packet passes without the
// rules and elements of before or of afterwards.
func (s rulesets) Put(_, want dataplane.Object) error {
	w := want.(dataplane.Ruleset)
	t := dataplane.Nftable{Family: w.Family, Name: w.Table}
	have, is, err := s.table(t) // nothing is read if nothing has changed
	if err != nil {
		return err
	}
	if s.wanted[t] = w; !is && !s.needs(t) {
		return nil
	}
	if err := s.write(t, have, w); err != nil {
		return fmt.Errorf("changing table %s: %w", w.Table, err)
	}
	if err := s.markDirectOf(have, w); err != nil {
		return err
	}
	s.leave(t, have, w)
	return s.finish(t, w)
}

// rulesetLeft is what is still to do after a table has changed.
type rulesetLeft struct {
	forgotten []string       // sets that are emptied
	ended     []netip.Prefix // networks whose connections end
	// translated is the table before, if it is GlobalnetTable, with all elements whose connections
	// may have to end.
	translated dataplane.Ruleset
}

// leave adds to what is still to do what there is to do after a table has changed from have to w.
func (s rulesets) leave(t dataplane.Nftable, have, w dataplane.Ruleset) {
	l, more := s.left[t]
	l.forgotten = append(l.forgotten, w.Forgotten(have)...)
	slices.Sort(l.forgotten)
	l.forgotten = slices.Compact(l.forgotten)
	l.ended = append(l.ended, w.Ended(have)...)
	slices.SortFunc(l.ended, netip.Prefix.Compare)
	l.ended = slices.Compact(l.ended)
	if t == dataplane.GlobalnetTable {
		before := withElementsOf(have, l.translated)
		if more {
			before.Table = l.translated.Table
		}
		l.translated = before
	}
	s.left[t] = l
}

// finish forgets what rules have remembered, once more: they could still remember a packet that was
// on its way when the set was emptied together with the change. Then it ends connections. What
// fails is tried again by the next put: see list.
func (s rulesets) finish(t dataplane.Nftable, w dataplane.Ruleset) error {
	left := s.left[t]
	left.forgotten = slices.DeleteFunc(left.forgotten, func(name string) bool { return w.Set(name) == nil })
	if len(left.forgotten) > 0 {
		tx, err := transaction()
		if err != nil {
			return err
		}
		before := s.conn.Generation() // it stays if there is nothing to forget
		table := &nftables.Table{Family: nftables.TableFamily(nftFamilies[t.Family]), Name: t.Name}
		for _, name := range left.forgotten {
			tx.FlushSet(&nftables.Set{Table: table, Name: name})
		}
		if err := s.flushTable(tx, "forgetting senders in", t.Name, "nftables"); err != nil {
			return err
		}
		seen := s.seen[t]
		if len(seen.objects) == 1 && seen.generation == before {
			seen.became(seen.objects[0], s.conn.Generation())
			s.seen[t] = seen
		}
		left.forgotten = nil
		s.left[t] = left
	}
	if err := s.flows.EndNetworks(left.ended, w.Ends.Announced); err != nil {
		return err
	}
	if t == dataplane.GlobalnetTable {
		if err := s.endTranslated(left.translated, w); err != nil {
			return err
		}
	}
	delete(s.left, t)
	return nil
}

// write runs one transaction: all of it takes effect, or nothing.
func (s rulesets) write(t dataplane.Nftable, have, w dataplane.Ruleset) error {
	if have.Table == "" || !have.SameShape(w) {
		have, err := s.prepare(t, have, w)
		if err != nil {
			return err
		}
		return s.run(w.Script(have))
	}
	if err := s.alterElements(t, have, w); err != nil {
		return err
	}
	have.Sets = w.Sets
	seen := s.seen[t]
	seen.became(have, s.conn.Generation())
	s.seen[t] = seen
	return nil
}

// markDirectOf gives dataplane.DirectMark to connections that exist: of networks that are new, or
// of all if the rules are.
func (s rulesets) markDirectOf(have, w dataplane.Ruleset) error {
	from := w.Set(w.Direct.From)
	if from == nil {
		return nil
	}
	elements := from.Elements
	if had := have.Set(w.Direct.From); had != nil && have.SameShape(w) {
		elements = dataplane.WithoutElements(elements, had.Elements)
	}
	var nets []netip.Prefix
	for _, e := range elements {
		n, err := netip.ParsePrefix(e)
		if err != nil {
			return fmt.Errorf("reading set %s of table %s: %w", from.Name, w.Table, err)
		}
		nets = append(nets, n)
	}
	return s.flows.MarkDirect(nets, w.Direct.Announced)
}

func (s rulesets) remove(r dataplane.Ruleset) error {
	if err := s.run(fmt.Sprintf("add table %s %s\ndelete table %[1]s %[2]s\n", r.Family, r.Table)); err != nil {
		return fmt.Errorf("removing table %s: %w", r.Table, err)
	}
	return nil
}

// Delete removes the table. All connections that a table of globalnet translated end: the node is
// no gateway any more, or the cluster has left. If ending them fails, they end when nobody sends
// any more: no table shows that they are left.
func (s rulesets) Delete(old dataplane.Object) error {
	r := old.(dataplane.Ruleset)
	t := dataplane.Nftable{Family: r.Family, Name: r.Table}
	left := s.left[t]
	was := s.wanted[t]
	delete(s.left, t)
	delete(s.wanted, t)
	if !s.needs(t) {
		if _, is, err := s.table(t); !is {
			return err
		}
	}
	if err := s.remove(r); err != nil || t != dataplane.GlobalnetTable {
		return err
	}
	return s.endTranslated(withElementsOf(r, left.translated), dataplane.Ruleset{Pods: was.Pods})
}

// Check returns an error if nft(8) would refuse to put a table. It changes nothing.
func (s *Tables) Check(w dataplane.Ruleset) error { return rulesets{s}.check(w) }

func (s rulesets) check(w dataplane.Ruleset) error {
	have, _, err := s.table(dataplane.Nftable{Family: w.Family, Name: w.Table})
	if err != nil {
		return err
	}
	return s.run(w.Script(have), "--check")
}

// run gives a script to nft(8).
func (s rulesets) run(script string, options ...string) error {
	if err := s.home.Check(); err != nil {
		return fmt.Errorf("running nft: %w", err)
	}
	cmd := exec.Command("nft", append(options, "-f", "-")...)
	var problems bytes.Buffer
	cmd.Stdin = strings.NewReader(script)
	cmd.Stderr = &problems
	err := cmd.Run()
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("running nft: %w: install the package nftables", err)
	}
	if err != nil {
		const enough = 2000 // nft reports each line of which it did not like a word
		said := strings.TrimSpace(problems.String())
		return fmt.Errorf("running nft: %w: %s", err, said[:min(len(said), enough)])
	}
	return nil
}

// ask sends a request about a table and returns the answers.
func (s rulesets) ask(t dataplane.Nftable, typ int, dump bool, attribute uint16) ([][]byte, error) {
	q := netlink.PutString(netlink.NetfilterHeader(nftFamilies[t.Family]), attribute, t.Name)
	typ |= unix.NFNL_SUBSYS_NFTABLES << 8
	if dump {
		return s.conn.Dump(unix.NETLINK_NETFILTER, typ, q)
	}
	return s.conn.Request(unix.NETLINK_NETFILTER, typ, 0, q)
}

// read returns a table. The error is Gone if there is none.
func (s rulesets) read(t dataplane.Nftable) (dataplane.Ruleset, error) {
	out := dataplane.Ruleset{Family: t.Family, Table: t.Name}
	msgs, err := s.ask(t, unix.NFT_MSG_GETTABLE, false, unix.NFTA_TABLE_NAME)
	if err != nil {
		return dataplane.Ruleset{}, err
	}
	dormant := false
	for t, v := range netlink.Attrs(msgs[0][nl.SizeofNfgenmsg:]) {
		dormant = dormant || t == unix.NFTA_TABLE_FLAGS && binary.BigEndian.Uint32(v) != 0
	}
	if msgs, err = s.ask(t, unix.NFT_MSG_GETSET, true, unix.NFTA_SET_TABLE); err != nil {
		return out, err
	}
	for _, m := range msgs {
		set := readSet(m)
		if set.flags&setAnonymous != 0 { // it belongs to a rule
			continue
		}
		if set.flags&setDynamic == 0 {
			if err := s.readElements(t, &set); err != nil {
				return out, err
			}
		}
		out.Sets = append(out.Sets, set.RuleSet)
	}
	if msgs, err = s.ask(t, unix.NFT_MSG_GETCHAIN, true, unix.NFTA_CHAIN_TABLE); err != nil {
		return out, err
	}
	at := map[string]int{}
	for _, m := range msgs { // of all tables: the kernel does not filter
		if c, table := ruleChain(m, nftFamilies[t.Family]); table == t.Name {
			c.Odd = c.Odd || dormant
			out.Chains = append(out.Chains, c)
		}
	}
	slices.SortFunc(out.Sets, func(a, b dataplane.RuleSet) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(out.Chains, func(a, b dataplane.RuleChain) int { return strings.Compare(a.Name, b.Name) })
	for i, c := range out.Chains {
		at[c.Name] = i
	}
	if msgs, err = s.ask(t, unix.NFT_MSG_GETRULE, true, unix.NFTA_RULE_TABLE); err != nil {
		return out, err
	}
	for _, m := range msgs {
		rule, chain := textRule(m)
		if i, ok := at[chain]; ok {
			out.Chains[i].Rules = append(out.Chains[i].Rules, rule)
		}
	}
	return out, nil
}

// ruleChain reads a chain and the name of its table; "" if the table is of another family.
func ruleChain(m []byte, family uint8) (c dataplane.RuleChain, table string) {
	if m[0] != family {
		return c, ""
	}
	for t, v := range netlink.Attrs(m[nl.SizeofNfgenmsg:]) {
		switch t {
		case unix.NFTA_CHAIN_TABLE:
			table = netlink.Text(v)
		case unix.NFTA_CHAIN_NAME:
			c.Name = netlink.Text(v)
		case unix.NFTA_CHAIN_TYPE:
			c.Type = netlink.Text(v)
		case unix.NFTA_CHAIN_POLICY:
			c.Odd = c.Odd || binary.BigEndian.Uint32(v) != policyAccept
		case unix.NFTA_CHAIN_HOOK:
			for t, v := range netlink.Attrs(v) {
				switch t {
				case unix.NFTA_HOOK_HOOKNUM:
					if n := int(binary.BigEndian.Uint32(v)); n < len(inetHooks) {
						c.Hook = inetHooks[n]
					}
				case unix.NFTA_HOOK_PRIORITY:
					c.Priority = int(int32(binary.BigEndian.Uint32(v)))
				default:
					c.Odd = true // restricted to devices
				}
			}
		}
	}
	return c, table
}

// textRule reads a rule and the name of its chain.
func textRule(m []byte) (r dataplane.TextRule, chain string) {
	r.Seen = dataplane.Foreign
	for t, v := range netlink.Attrs(m[nl.SizeofNfgenmsg:]) {
		switch t {
		case unix.NFTA_RULE_CHAIN:
			chain = netlink.Text(v)
		case unix.NFTA_RULE_HANDLE:
			r.Handle = binary.BigEndian.Uint64(v)
		case unix.NFTA_RULE_USERDATA:
			if said, ok := userdata.GetString(v, userdata.TypeComment); ok {
				r.Seen = dataplane.CommentDigest(said)
			}
		}
	}
	return r, chain
}
