//go:build linux

package kernel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"subctl/dataplane"
	"subctl/dataplane/kernel/netlink"

	"github.com/google/nftables/userdata"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// rulesets is the owner's nftables table of Ruleset: everything in it is ours. It is written by nft(8), as its rules are text, and read
// over netlink.
type rulesets struct{ *Host }

const (
	nfprotoInet = 1 // NFPROTO_INET, linux/netfilter.h

	setAnonymous = 0x1         // NFT_SET_ANONYMOUS, linux/netfilter/nf_tables.h
	setTypeAddr4 = 7           // TYPE_IPADDR of nft(8), include/datatype.h: what a key means to its user
	setDynamic   = 0x10 | 0x20 // NFT_SET_TIMEOUT | NFT_SET_EVAL
	policyAccept = 1           // NF_ACCEPT, linux/netfilter.h
)

// inetHooks are the names of the hooks of family inet (enum nf_inet_hooks).
var inetHooks = []string{"prerouting", "input", "forward", "output", "postrouting"}

func (s rulesets) list() ([]dataplane.Object, error) {
	return s.listTable(s.owner.Ruleset, &s.ipt.rulesetSeen, func() (dataplane.Object, error) { return s.read() })
}

// put runs one transaction: all of it takes effect, or nothing.
func (s rulesets) put(_, want dataplane.Object) error {
	w := want.(dataplane.Ruleset)
	seen, err := s.list() // nothing is read if nothing has changed
	if err != nil {
		return err
	}
	have := dataplane.Ruleset{}
	if len(seen) > 0 {
		have = seen[0].(dataplane.Ruleset)
	}
	if err := s.run(w.Script(have)); err != nil {
		return fmt.Errorf("changing table %s: %w", w.Table, err)
	}
	return nil
}

func (s rulesets) del(old dataplane.Object) error {
	table := old.(dataplane.Ruleset).Table
	if err := s.run(fmt.Sprintf("add table inet %s\ndelete table inet %[1]s\n", table)); err != nil {
		return fmt.Errorf("removing table %s: %w", table, err)
	}
	return nil
}

// run gives a script to nft(8).
func (s rulesets) run(script string) error {
	if ns, err := netlink.Namespace(); err != nil || ns != s.ipt.netns {
		return fmt.Errorf("running nft: the thread is in network namespace %s, and the objects are in %s (%w)", ns, s.ipt.netns, err)
	}
	cmd := exec.Command("nft", "-f", "-")
	var problems bytes.Buffer
	cmd.Stdin, cmd.Stderr = strings.NewReader(script), &problems
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

// ask sends a request about the table and returns the answers.
func (s rulesets) ask(typ int, dump bool, attribute uint16) ([][]byte, error) {
	q := netlink.PutString(netlink.NetfilterHeader(nfprotoInet), attribute, s.owner.Ruleset)
	typ |= unix.NFNL_SUBSYS_NFTABLES << 8
	if dump {
		return s.conn.Dump(unix.NETLINK_NETFILTER, typ, q)
	}
	return s.conn.Request(unix.NETLINK_NETFILTER, typ, 0, q)
}

// read returns the table. The error is Gone if there is none.
func (s rulesets) read() (dataplane.Ruleset, error) {
	out := dataplane.Ruleset{Table: s.owner.Ruleset}
	msgs, err := s.ask(unix.NFT_MSG_GETTABLE, false, unix.NFTA_TABLE_NAME)
	if err != nil {
		return dataplane.Ruleset{}, err
	}
	dormant := false
	for t, v := range netlink.Attrs(msgs[0][nl.SizeofNfgenmsg:]) {
		dormant = dormant || t == unix.NFTA_TABLE_FLAGS && binary.BigEndian.Uint32(v) != 0
	}
	if msgs, err = s.ask(unix.NFT_MSG_GETSET, true, unix.NFTA_SET_TABLE); err != nil {
		return out, err
	}
	for _, m := range msgs {
		if set, named := ruleSet(m); named {
			out.Sets = append(out.Sets, set)
		}
	}
	if msgs, err = s.ask(unix.NFT_MSG_GETCHAIN, true, unix.NFTA_CHAIN_TABLE); err != nil {
		return out, err
	}
	at := map[string]int{}
	for _, m := range msgs { // of all tables: the kernel does not filter
		if c, table := ruleChain(m); table == s.owner.Ruleset {
			c.Odd = c.Odd || dormant
			out.Chains = append(out.Chains, c)
		}
	}
	slices.SortFunc(out.Sets, func(a, b dataplane.RuleSet) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(out.Chains, func(a, b dataplane.RuleChain) int { return strings.Compare(a.Name, b.Name) })
	for i, c := range out.Chains {
		at[c.Name] = i
	}
	if msgs, err = s.ask(unix.NFT_MSG_GETRULE, true, unix.NFTA_RULE_TABLE); err != nil {
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

// ruleSet reads a set, and reports whether it has a name of its own: the others belong to rules.
func ruleSet(m []byte) (set dataplane.RuleSet, named bool) {
	var typ, flags uint32
	for t, v := range netlink.Attrs(m[nl.SizeofNfgenmsg:]) {
		switch t {
		case unix.NFTA_SET_NAME:
			set.Name = netlink.Text(v)
		case unix.NFTA_SET_FLAGS:
			flags = binary.BigEndian.Uint32(v)
		case unix.NFTA_SET_KEY_TYPE:
			typ = binary.BigEndian.Uint32(v)
		case unix.NFTA_SET_DESC:
			for t, v := range netlink.Attrs(v) {
				if t == unix.NFTA_SET_DESC_SIZE {
					set.Size = int(binary.BigEndian.Uint32(v))
				}
			}
		}
	}
	set.Odd = typ != setTypeAddr4 || flags != setDynamic
	return set, flags&setAnonymous == 0
}

// ruleChain reads a chain and the name of its table.
func ruleChain(m []byte) (c dataplane.RuleChain, table string) {
	if m[0] != nfprotoInet {
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
