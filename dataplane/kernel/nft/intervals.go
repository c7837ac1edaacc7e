//go:build linux

package nft

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"net/netip"
	"slices"

	"subctl/dataplane/kernel/netlink"

	"github.com/google/nftables/userdata"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// intervals calls f with the networks in a set of intervals, in order, and with the element that
// begins each. The zero Prefix stands for an interval that is no network.
func intervals(msgs [][]byte, f func(netip.Prefix, bound)) {
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
		f(p, b)
	}
}

// bound is one end of an interval.
type bound struct {
	at      uint32
	end     bool
	comment string
	packets uint64 // of its counter
	value   []byte // in a map
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
		case unix.NFTA_SET_ELEM_DATA:
			for _, b.value = range netlink.Attrs(v) {
			}
		case unix.NFTA_SET_ELEM_USERDATA:
			b.comment, _ = userdata.GetString(v, userdata.NFTNL_UDATA_SET_ELEM_COMMENT)
		case unix.NFTA_SET_ELEM_EXPR:
			b.packets, _ = counterOf(v)
		}
	}
	return b
}

// network returns the network of the addresses from first to end, without end, or the zero
// Prefix if they are no network.
func network(first, end uint32) netip.Prefix {
	size := end - first
	if bits.OnesCount32(size) != 1 || first%size != 0 {
		return netip.Prefix{}
	}
	var ip [4]byte
	binary.BigEndian.PutUint32(ip[:], first)
	return netip.PrefixFrom(netip.AddrFrom4(ip), 1+bits.LeadingZeros32(size))
}
