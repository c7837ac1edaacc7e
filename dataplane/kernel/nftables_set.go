//go:build linux

package kernel

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"net/netip"
	"slices"

	"subctl/dataplane/kernel/netlink"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// This file writes and reads the elements of sets of networks in nftables.

// elements calls do with networks as elements of a set of intervals, some at a time.
func elements(nets []netip.Prefix, do func([]nftables.SetElement) error) error {
	for batch := range slices.Chunk(nets, nftBatch) {
		var out []nftables.SetElement
		for _, n := range batch {
			first := n.Addr().As4()
			end := binary.BigEndian.Uint32(first[:]) + 1<<(32-n.Bits())
			out = append(out, nftables.SetElement{Key: first[:]},
				nftables.SetElement{Key: binary.BigEndian.AppendUint32(nil, end), IntervalEnd: true})
		}
		if err := do(out); err != nil {
			return err
		}
	}
	return nil
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
	size := end - first
	if bits.OnesCount32(size) != 1 || first%size != 0 {
		return netip.Prefix{}
	}
	var ip [4]byte
	binary.BigEndian.PutUint32(ip[:], first)
	return netip.PrefixFrom(netip.AddrFrom4(ip), 1+bits.LeadingZeros32(size))
}
