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
