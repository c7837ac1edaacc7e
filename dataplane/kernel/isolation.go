//go:build linux

package kernel

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"subctl/dataplane"
	"subctl/dataplane/kernel/netlink"

	"github.com/google/nftables"
	vnl "github.com/vishvananda/netlink"
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
	msgs, err := h.nft(unix.NFT_MSG_GETSETELEM, unix.NLM_F_DUMP,
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
	if err := h.deleteFlows(flowsOf(nets)); err != nil {
		return fmt.Errorf("deleting the conntrack entries of %v: %w", nets, err)
	}
	return nil
}

// deleteFlows deletes the conntrack entries that match.
func (h *Host) deleteFlows(f vnl.CustomConntrackFilter) error {
	_, err := h.nl.ConntrackDeleteFilters(vnl.ConntrackTable, unix.AF_INET, f)
	if errors.Is(err, vnl.ErrDumpInterrupted) { // connections came and went
		_, err = h.nl.ConntrackDeleteFilters(vnl.ConntrackTable, unix.AF_INET, f)
	}
	return err
}

// service is a port of an exported Service and one of its endpoints.
type service struct{ at, to netip.AddrPort }

// datagramsTo matches the conntrack entries of UDP connections to ports of Services that were translated to endpoints.
type datagramsTo map[service]bool

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (gone datagramsTo) MatchConntrackFlow(f *vnl.ConntrackFlow) bool {
	at, _ := netip.AddrFromSlice(f.Forward.DstIP)
	to, _ := netip.AddrFromSlice(f.Reverse.SrcIP)
	return f.Forward.Protocol == unix.IPPROTO_UDP &&
		gone[service{netip.AddrPortFrom(at.Unmap(), f.Forward.DstPort), netip.AddrPortFrom(to.Unmap(), f.Reverse.SrcPort)}]
}

// flowsOf matches the conntrack entries of connections from or to networks, before or after translation.
type flowsOf []netip.Prefix

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (nets flowsOf) MatchConntrackFlow(f *vnl.ConntrackFlow) bool {
	for _, ip := range []net.IP{f.Forward.SrcIP, f.Forward.DstIP, f.Reverse.SrcIP, f.Reverse.DstIP} {
		a, _ := netip.AddrFromSlice(ip)
		for _, n := range nets {
			if n.Contains(a.Unmap()) {
				return true
			}
		}
	}
	return false
}
