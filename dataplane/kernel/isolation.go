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
	err := h.deleteFlows(func(original, reply dataplane.Flow) bool {
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

// mostEnded bounds the memory for entries that are about to be deleted: whoever can send packets decides how many there are.
const mostEnded = 10000

// deleteFlows deletes the conntrack entries whose two directions match.
func (h *Host) deleteFlows(match func(original, reply dataplane.Flow) bool) error {
	for pass, passes := 0, 1; pass < passes; pass++ { // new ones that match may come all the time
		found, n, err := h.someFlows(match)
		if err != nil {
			return err
		}
		if pass == 0 {
			passes = (n + mostEnded - 1) / mostEnded
		}
		for _, entry := range found {
			if _, err := h.conn.Request(unix.NETLINK_NETFILTER, unix.NFNL_SUBSYS_CTNETLINK<<8|ctDelete, unix.NLM_F_ACK, entry); err != nil && !netlink.Gone(err) {
				return err
			}
		}
	}
	return nil
}

// someFlows returns entries that match, at most mostEnded, and how many there are: the messages that delete them, without their
// types. It keeps no other entry in memory.
func (h *Host) someFlows(match func(original, reply dataplane.Flow) bool) (found [][]byte, n int, err error) {
	err = h.conn.Each(unix.NFNL_SUBSYS_CTNETLINK<<8|ctGet, netlink.NetfilterHeader(unix.AF_INET), func(m []byte) {
		if len(m) < unix.SizeofNlAttr {
			return
		}
		var original, reply dataplane.Flow
		for typ, v := range netlink.Attrs(m[unix.SizeofNlAttr:]) {
			switch typ {
			case ctaTupleOrig:
				original, _ = parseTuple(v)
			case ctaTupleReply:
				reply, _ = parseTuple(v)
			}
		}
		if !match(original, reply) {
			return
		}
		if n++; len(found) < mostEnded {
			found = append(found, deletion(m))
		}
	})
	return found, n, err
}

// deletion returns the message that deletes an entry, without its type.
func deletion(entry []byte) []byte {
	out := netlink.NetfilterHeader(unix.AF_INET)
	for typ, v := range netlink.Attrs(entry[unix.SizeofNlAttr:]) {
		switch typ {
		case ctaTupleOrig:
			out = netlink.PutAttr(out, typ|unix.NLA_F_NESTED, v)
		case ctaID, ctaZone:
			out = netlink.PutAttr(out, typ, v)
		}
	}
	return out
}
