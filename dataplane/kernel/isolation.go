//go:build linux

package kernel

import (
	"fmt"
	"net/netip"

	"subctl/dataplane"
	"subctl/dataplane/kernel/netlink"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

var _ dataplane.DropCounter = (*Host)(nil)

// counted is an element of the set "clusters".
type counted struct {
	dataplane.ClusterNet
	packets uint64
}

// readClusters returns the elements of the set "clusters", in order. An element that no plan has is zero.
func readClusters(msgs [][]byte) (out []counted) {
	intervals(msgs, func(n netip.Prefix, b bound) {
		c := counted{packets: b.packets}
		if n.IsValid() {
			c.ClusterNet = dataplane.ClusterNet{Net: n, Cluster: b.comment}
		}
		out = append(out, c)
	})
	return out
}

// clusterElements calls do with elements of the set "clusters", some at a time.
func clusterElements(nets []dataplane.ClusterNet, do func([]nftables.SetElement) error) error {
	return commented(nets, func(n dataplane.ClusterNet) (netip.Prefix, string) { return n.Net, n.Cluster }, do)
}

// Drops implements dataplane.DropCounter. Linux counts since version 5.7.
func (h *Host) Drops() (map[string]uint64, error) {
	msgs, err := h.nft(family4, unix.NFT_MSG_GETSETELEM, unix.NLM_F_DUMP,
		unix.NFTA_SET_ELEM_LIST_TABLE, h.owner.Antispoof, unix.NFTA_SET_ELEM_LIST_SET, dataplane.AntispoofSetClusters)
	if err != nil && !netlink.Gone(err) {
		return nil, fmt.Errorf("reading the counters of table %s: %w", h.owner.Antispoof, err)
	}
	drops := map[string]uint64{}
	for _, c := range readClusters(msgs) {
		if c.Cluster != "" {
			drops[c.Cluster] += c.packets
		}
	}
	return drops, nil
}

// endFlows deletes the conntrack entries of connections from or to addresses in some networks. Then
// an established connection is a new one, which is subject to all rules, and to no translation of before.
func (h *Host) endFlows(nets []netip.Prefix) error {
	if len(nets) == 0 {
		return nil
	}
	ended := dataplane.Within(nets)
	err := h.endMatching(func(original, reply dataplane.Flow) bool {
		return ended(original.Src.Addr()) || ended(original.Dst.Addr()) || ended(reply.Src.Addr()) || ended(reply.Dst.Addr())
	})
	if err != nil {
		return fmt.Errorf("deleting the conntrack entries of %v: %w", nets, err)
	}
	return nil
}

// service is a port of an exported Service and one of its endpoints.
type service struct{ at, to netip.AddrPort }

// datagramsTo matches the conntrack entries of UDP connections to ports of Services that were translated to endpoints.
type datagramsTo map[service]bool

func (gone datagramsTo) match(original, reply dataplane.Flow) bool {
	return original.Proto == protocol(unix.IPPROTO_UDP) && gone[service{original.Dst, reply.Src}]
}

// deleteFlows deletes the conntrack entries whose two directions match.
func (h *Host) deleteFlows(match func(original, reply dataplane.Flow) bool) error {
	return changeEntries(h.conn, ctDelete, netlink.NetfilterHeader(unix.AF_INET), func(entry []byte) []byte {
		var original, reply dataplane.Flow
		for typ, v := range netlink.Attrs(entry[unix.SizeofNlAttr:]) {
			switch typ {
			case ctaTupleOrig:
				original, _ = parseTuple(v)
			case ctaTupleReply:
				reply, _ = parseTuple(v)
			}
		}
		if !match(original, reply) {
			return nil
		}
		return sameEntry(entry)
	})
}
