//go:build linux

package kernel

import (
	"cmp"
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"strings"

	"subctl/dataplane"
	"subctl/dataplane/kernel/netlink"

	"github.com/google/nftables"
	"github.com/google/nftables/userdata"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// without4 reports whether err means that the kernel has no nftables, or none for IPv4.
func without4(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT)
}

// read returns the table. If it holds anything that a plan does not hold, Local is the zero
// Prefix, which no plan has.
func (s sources) read() (dataplane.Sources, error) {
	o := dataplane.Sources{Table: s.owner.NFTable}
	blank := dataplane.Sources{Table: s.owner.NFTable, Local: []netip.Prefix{{}}}
	intact, err := s.intact()
	if err != nil {
		return o, err
	}
	if !intact {
		return blank, nil
	}
	msgs, err := s.nft(unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, unix.NFTA_RULE_TABLE, o.Table)
	if err != nil {
		return o, err
	}
	for i, m := range msgs {
		said := ""
		for t, v := range netlink.Attrs(m[nl.SizeofNfgenmsg:]) {
			if t == unix.NFTA_RULE_USERDATA {
				said, _ = userdata.GetString(v, userdata.TypeComment)
			}
		}
		p, err := netip.ParsePrefix(strings.TrimPrefix(said, [...]string{"from ", "to "}[i%2]))
		switch {
		case err != nil:
			return blank, nil
		case i%2 == 0:
			o.Local = append(o.Local, p)
		case p != o.Local[i/2]:
			return blank, nil
		}
	}
	if len(msgs)%2 != 0 {
		return blank, nil
	}
	msgs, err = s.nft(unix.NFT_MSG_GETSETELEM, unix.NLM_F_DUMP, unix.NFTA_SET_ELEM_LIST_TABLE, o.Table,
		unix.NFTA_SET_ELEM_LIST_SET, sourcesSet)
	o.Remote = readNets(msgs)
	return o, err
}

// intact reports whether the table holds our set and chain, and nothing else.
func (s sources) intact() (bool, error) {
	msgs, err := s.nft(unix.NFT_MSG_GETTABLE, 0, unix.NFTA_TABLE_NAME, s.owner.NFTable)
	if err != nil {
		return false, err
	}
	for t, v := range netlink.Attrs(msgs[0][nl.SizeofNfgenmsg:]) {
		switch {
		case t == unix.NFTA_TABLE_FLAGS && binary.BigEndian.Uint32(v) != 0: // dormant
			return false, nil
		case t == unix.NFTA_TABLE_USE && binary.BigEndian.Uint32(v) != sourcesHolds:
			return false, nil
		}
	}
	msgs, err = s.nft(unix.NFT_MSG_GETCHAIN, 0, unix.NFTA_CHAIN_TABLE, s.owner.NFTable, unix.NFTA_CHAIN_NAME, sourcesChain)
	if err != nil {
		return false, netlink.OrGone(err)
	}
	hooked := false
	for t, v := range netlink.Attrs(msgs[0][nl.SizeofNfgenmsg:]) {
		switch t {
		case unix.NFTA_CHAIN_POLICY:
			if binary.BigEndian.Uint32(v) != uint32(nftables.ChainPolicyAccept) {
				return false, nil
			}
		case unix.NFTA_CHAIN_HOOK:
			hooked = true
		}
	}
	return hooked, nil
}

// nft sends a request about a table and returns the answers.
func (s sources) nft(typ, flags int, attributes ...any) ([][]byte, error) {
	q := netlink.NetfilterHeader(unix.AF_INET)
	for i := 0; i < len(attributes); i += 2 {
		q = netlink.PutString(q, uint16(attributes[i].(int)), attributes[i+1].(string))
	}
	typ |= unix.NFNL_SUBSYS_NFTABLES << 8
	if flags == unix.NLM_F_DUMP {
		return s.conn.Dump(unix.NETLINK_NETFILTER, typ, q)
	}
	return s.conn.Request(unix.NETLINK_NETFILTER, typ, flags, q)
}

// readNets returns the networks in a set of intervals. Each element is the first address of
// a network, or the first address after it.
func readNets(msgs [][]byte) (nets []netip.Prefix) {
	bounds := readBounds(msgs)
	slices.SortFunc(bounds, func(a, b bound) int {
		if a.at == b.at && a.end != b.end { // one ends where the next begins
			if a.end {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.at, b.at)
	})
	for i, b := range bounds {
		if b.end {
			continue
		}
		var p netip.Prefix // zero: no network
		if i+1 < len(bounds) && bounds[i+1].end {
			p = network(b.at, bounds[i+1].at)
		}
		nets = append(nets, p)
	}
	return nets
}

// bound is one end of an interval.
type bound struct {
	at  uint32
	end bool
}

func readBounds(msgs [][]byte) (out []bound) {
	for _, m := range msgs {
		for t, list := range netlink.Attrs(m[nl.SizeofNfgenmsg:]) {
			if t != unix.NFTA_SET_ELEM_LIST_ELEMENTS {
				continue
			}
			for _, elem := range netlink.Attrs(list) {
				out = append(out, readBound(elem))
			}
		}
	}
	return out
}

func readBound(elem []byte) (b bound) {
	for t, v := range netlink.Attrs(elem) {
		switch t {
		case unix.NFTA_SET_ELEM_KEY:
			for _, key := range netlink.Attrs(v) {
				b.at = binary.BigEndian.Uint32(key)
			}
		case unix.NFTA_SET_ELEM_FLAGS:
			b.end = binary.BigEndian.Uint32(v)&unix.NFT_SET_ELEM_INTERVAL_END != 0
		}
	}
	return b
}

// network returns the network of the addresses from first to end, without end, or the zero
// Prefix if they are no network.
func network(first, end uint32) netip.Prefix {
	for bits := range 33 {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, first))), bits)
		if uint64(end-first) == 1<<(32-bits) && p == p.Masked() {
			return p
		}
	}
	return netip.Prefix{}
}
