//go:build linux

package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"

	"subctl/dataplane"
	"subctl/dataplane/kernel/netlink"

	"github.com/google/nftables"
	"github.com/google/nftables/userdata"
	mdlayher "github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// This file has what our tables of nftables have in common. The library is used for writing
// only: it lists the elements of sets twice, and cannot express everything that another program
// may add to our tables.

const (
	// nftBatch is the number of elements in one message, whose attributes have 64 kB.
	nftBatch = 500
	// nftBuffer holds the messages of one transaction, about 50 bytes an element.
	nftBuffer = 16 << 20

	family4, family6 = nftables.TableFamilyIPv4, nftables.TableFamilyIPv6
)

// nftSeen is the object of a table when it was read last, and nftables' generation then.
type nftSeen struct {
	objects    []dataplane.Object
	generation uint32
}

// listTable returns the object of a table, if the table exists. read reads it; that is not
// necessary if nothing in nftables has changed.
func (h *Host) listTable(
	table string,
	seen *nftSeen,
	read func() (dataplane.Object, error),
) ([]dataplane.Object, error) {
	if table == "" {
		return nil, nil
	}
	generation := h.conn.Generation()
	if generation != 0 && generation == seen.generation {
		return seen.objects, nil
	}
	var out []dataplane.Object
	switch o, err := read(); {
	case err == nil:
		out = append(out, o)
	case !netlink.Gone(err) && !lacksFamily(err):
		return nil, fmt.Errorf("listing table %s: %w", table, err)
	}
	*seen = nftSeen{objects: out}
	if generation == h.conn.Generation() { // otherwise it changed meanwhile
		seen.generation = generation
	}
	return out, nil
}

// became notes that a transaction has changed the object that was read last into o. If that was not
// the only transaction since then, the table is read again: each adds one to the generation
// (nf_tables_commit in net/netfilter/nf_tables_api.c), and is carried out as a whole.
func (seen *nftSeen) became(o dataplane.Object, generation uint32) {
	if seen.generation != 0 && generation == seen.generation+1 {
		*seen = nftSeen{objects: []dataplane.Object{o}, generation: generation}
	}
}

// delTable removes a table. It is no error if the table does not exist.
func (h *Host) delTable(family nftables.TableFamily, table, needs string) error {
	if _, err := h.nft(family, unix.NFT_MSG_GETTABLE, 0, unix.NFTA_TABLE_NAME, table); netlink.Gone(err) {
		return nil
	}
	tx, err := transaction()
	if err != nil {
		return fmt.Errorf("removing table %s: %w", table, err)
	}
	tx.DelTable(&nftables.Table{Family: family, Name: table})
	return h.flushTable(tx, "removing", table, needs)
}

// transaction returns a transaction, which collects changes. Its socket is opened when they
// are applied.
func transaction() (*nftables.Conn, error) {
	return nftables.New(nftables.WithSockOptions(func(c *mdlayher.Conn) error {
		return errors.Join(c.SetWriteBuffer(nftBuffer), c.SetReadBuffer(nftBuffer))
	}))
}

// flushTable applies a transaction. what it does to the table, and what it needs in the kernel, are
// for errors.
func (h *Host) flushTable(tx *nftables.Conn, what, table, needs string) error {
	if ns, err := netlink.Namespace(); err != nil || ns != h.ipt.netns {
		return fmt.Errorf("%s table %s: the thread is in network namespace %s, and the objects are in %s (%w)", what,
			table, ns, h.ipt.netns, err)
	}
	switch err := tx.Flush(); {
	case err == nil:
		return nil
	case lacksFamily(err) || errors.Is(err, unix.ENOENT):
		return fmt.Errorf("%s table %s: %w: does the kernel have %s?", what, table, err, needs)
	default:
		return fmt.Errorf("%s table %s: %w", what, table, err)
	}
}

// lacksFamily reports whether err means that the kernel has no nftables, or none for the family.
func lacksFamily(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT)
}

// nft sends a request about a table and returns the answers.
func (h *Host) nft(family nftables.TableFamily, typ, flags int, attributes ...any) ([][]byte, error) {
	q := netlink.NetfilterHeader(uint8(family))
	for i := 0; i < len(attributes); i += 2 {
		q = netlink.PutString(q, uint16(attributes[i].(int)), attributes[i+1].(string))
	}
	typ |= unix.NFNL_SUBSYS_NFTABLES << 8
	if flags == unix.NLM_F_DUMP {
		return h.conn.Dump(unix.NETLINK_NETFILTER, typ, q)
	}
	return h.conn.Request(unix.NETLINK_NETFILTER, typ, flags, q)
}

// tableHolds returns the number of sets and chains in a table; -1 if the table is dormant.
func (h *Host) tableHolds(family nftables.TableFamily, table string) (int, error) {
	msgs, err := h.nft(family, unix.NFT_MSG_GETTABLE, 0, unix.NFTA_TABLE_NAME, table)
	if err != nil {
		return 0, err
	}
	n := 0
	for t, v := range netlink.Attrs(msgs[0][nl.SizeofNfgenmsg:]) {
		switch t {
		case unix.NFTA_TABLE_FLAGS:
			if binary.BigEndian.Uint32(v) != 0 {
				return -1, nil
			}
		case unix.NFTA_TABLE_USE:
			n = int(binary.BigEndian.Uint32(v))
		}
	}
	return n, nil
}

// tableChain reports whether a chain of a table has a hook, and whether it accepts the packets for
// which no rule decides.
func (h *Host) tableChain(family nftables.TableFamily, table, name string) (hooked, accepts bool, err error) {
	msgs, err := h.nft(family, unix.NFT_MSG_GETCHAIN, 0, unix.NFTA_CHAIN_TABLE, table, unix.NFTA_CHAIN_NAME, name)
	if err != nil {
		return false, false, err
	}
	accepts = true
	for t, v := range netlink.Attrs(msgs[0][nl.SizeofNfgenmsg:]) {
		switch t {
		case unix.NFTA_CHAIN_POLICY:
			accepts = binary.BigEndian.Uint32(v) == uint32(nftables.ChainPolicyAccept)
		case unix.NFTA_CHAIN_HOOK:
			hooked = true
		}
	}
	return hooked, accepts, nil
}

// ruleComment returns the comment of rule number place of its chain, in a table of so many rules
// that holds some sets and chains. The kernel lists chains in the order in which they were created.
func ruleComment(place, all, holds int, fingerprint string) string {
	return fmt.Sprintf("%d/%d %d %s", place, all, holds, fingerprint)
}

// tableFingerprint returns the fingerprint of the plan of a table, by the comments of its rules;
// "damaged" if rules, chains or sets were added or removed, or if a chain is hooked otherwise than
// planned or drops packets for which no rule decides.
func (h *Host) tableFingerprint(
	family nftables.TableFamily,
	table string,
	planned func(chain string) (hooked bool),
) (string, error) {
	holds, err := h.tableHolds(family, table)
	if err != nil {
		return damaged, err
	}
	msgs, err := h.nft(family, unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, unix.NFTA_RULE_TABLE, table)
	if err != nil {
		return damaged, err
	}
	seen := ""
	intact := holds >= 0 && len(msgs) > 0
	place := map[string]int{}
	for i, m := range msgs {
		said := ""
		chain := ""
		for t, v := range netlink.Attrs(m[nl.SizeofNfgenmsg:]) {
			switch t {
			case unix.NFTA_RULE_USERDATA:
				said, _ = userdata.GetString(v, userdata.TypeComment)
			case unix.NFTA_RULE_CHAIN:
				chain = netlink.Text(v)
			}
		}
		var fingerprint string
		place[chain]++
		_, err := fmt.Sscanf(said, ruleComment(place[chain], len(msgs), holds, "")+"%s", &fingerprint)
		intact = intact && err == nil && (i == 0 || fingerprint == seen)
		seen = fingerprint
	}
	for name := range place {
		hooked, accepts, err := h.tableChain(family, table, name)
		if err != nil {
			return damaged, netlink.OrGone(err)
		}
		intact = intact && accepts && hooked == planned(name)
	}
	if !intact {
		return damaged, nil
	}
	return seen, nil
}
