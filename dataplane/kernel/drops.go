//go:build linux

package kernel

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"subctl/dataplane"
	"subctl/dataplane/kernel/netlink"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

var _ dataplane.DropCounter = (*Host)(nil)

// counted is an element of the set "clusters".
type counted struct {
	dataplane.ClusterNet
	packets uint64
}

// readClusters returns the elements of the set "clusters", in order. An element that no plan has is
// zero.
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

// DropReasons implements dataplane.DropCounter. Only rules that drop packets have counters.
func (h *Host) DropReasons() (map[string]uint64, error) {
	reasons := map[string]uint64{}
	tables := []string{h.owner.Antispoof}
	if slices.Contains(h.owner.Nftables, dataplane.GlobalnetTable) {
		tables = append(tables, dataplane.GlobalnetTable.Name)
	}
	for _, table := range tables {
		for _, family := range []nftables.TableFamily{family4, family6} {
			if table == "" {
				continue
			}
			msgs, err := h.nft(family, unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, unix.NFTA_RULE_TABLE, table)
			if err != nil && !netlink.Gone(err) && !lacksFamily(err) {
				return nil, fmt.Errorf("reading the counters of table %s: %w", table, err)
			}
			for _, m := range msgs {
				chain, packets, counts := ruleCounter(m)
				if reason := dataplane.DropReason(chain); counts && reason != "" {
					reasons[reason] += packets
				}
			}
		}
	}
	return reasons, nil
}

// ruleCounter returns the chain of a rule and the packets that its counter has counted, if it has
// one.
func ruleCounter(m []byte) (chain string, packets uint64, counts bool) {
	for t, v := range netlink.Attrs(m[nl.SizeofNfgenmsg:]) {
		switch t {
		case unix.NFTA_RULE_CHAIN:
			chain = netlink.Text(v)
		case unix.NFTA_RULE_EXPRESSIONS:
			for _, expression := range netlink.Attrs(v) {
				if n, is := counterOf(expression); is {
					packets = n
					counts = true
				}
			}
		}
	}
	return chain, packets, counts
}

// counterOf returns the packets of an expression that is a counter.
func counterOf(expression []byte) (packets uint64, is bool) {
	for t, v := range netlink.Attrs(expression) {
		switch t {
		case unix.NFTA_EXPR_NAME:
			is = netlink.Text(v) == "counter"
		case unix.NFTA_EXPR_DATA:
			if !is {
				return 0, false
			}
			for t, v := range netlink.Attrs(v) {
				if t == unix.NFTA_COUNTER_PACKETS && len(v) == 8 {
					packets = binary.BigEndian.Uint64(v)
				}
			}
		}
	}
	return packets, is
}

// ChainDrops implements dataplane.DropCounter.
func (h *Host) ChainDrops() (map[string]uint64, error) {
	reasons := map[string]uint64{}
	if h.owner.Chains == "" {
		return reasons, nil
	}
	if h.owner.Name == dataplane.RouteOwner.Name { // one agent of the node, as the counter is the node's
		n, err := reversePathDrops()
		if err != nil {
			return nil, err
		}
		reasons[dataplane.DropReversePath] = n
	}
	saved, err := h.ipt.look()
	if err != nil {
		return nil, err
	}
	read := map[string]bool{}
	for _, r := range saved {
		name := r.table + " " + r.chain
		if !h.owner.OwnsChain(r.chain) || dataplane.ChainDropReason(r.rule) == "" || read[name] {
			continue
		}
		read[name] = true
		out, err := h.ipt.counters(r.table, r.chain)
		if err != nil {
			return nil, fmt.Errorf("reading the counters of chain %s: %w", r.chain, err)
		}
		for line := range strings.Lines(out) {
			packets, counts := rulePackets(line)
			if reason := dataplane.ChainDropReason(strings.TrimSpace(line)); counts && reason != "" {
				reasons[reason] += packets
			}
		}
	}
	return reasons, nil
}

// rulePackets returns the packets that a rule has counted, in the notation of "iptables -v -S";
// false if the line is no rule.
func rulePackets(line string) (n uint64, counts bool) {
	_, after, ok := strings.Cut(line, " -c ")
	text, _, _ := strings.Cut(after, " ")
	n, err := strconv.ParseUint(text, 10, 64)
	return n, ok && err == nil
}

// netstat has counters of the network namespace: lines in pairs, the names and the values.
const netstat = "/proc/thread-self/net/netstat"

// reversePathDrops returns how many packets the kernel has dropped because of rp_filter.
func reversePathDrops() (uint64, error) {
	text, err := os.ReadFile(netstat)
	if err != nil {
		return 0, fmt.Errorf("reading what rp_filter has dropped: %w", err)
	}
	var names []string
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if i := slices.Index(names, "IPReversePathFilter"); i >= 0 && i < len(fields) && fields[0] == names[0] {
			return strconv.ParseUint(fields[i], 10, 64)
		}
		names = fields
	}
	return 0, nil // a kernel without the counter
}
