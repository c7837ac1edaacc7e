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
	"github.com/google/nftables/userdata"
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

// Drops implements dataplane.DropCounter. Linux counts since version 5.7.
func (h *Host) Drops() (map[string]uint64, error) {
	drops := map[string]uint64{}
	clusters, err := h.counters("clusters")
	if err != nil {
		return nil, err
	}
	nets := readClusters(clusters)
	for _, c := range nets {
		if c.Cluster != "" {
			drops[c.Cluster] += c.packets
		}
	}
	forged, err := h.counters("forged")
	if err != nil {
		return nil, err
	}
	for sender, packets := range forgedBy(forged) {
		for _, c := range nets {
			if c.Cluster != "" && c.Net.Contains(sender) {
				drops[c.Cluster] += packets
			}
		}
	}
	return drops, nil
}

// counters returns the elements of a set of the table against forged packets, if there is one.
func (h *Host) counters(set string) ([][]byte, error) {
	msgs, err := h.nft(family4, unix.NFT_MSG_GETSETELEM, unix.NLM_F_DUMP,
		unix.NFTA_SET_ELEM_LIST_TABLE, h.owner.Antispoof, unix.NFTA_SET_ELEM_LIST_SET, set)
	if err != nil && !netlink.Gone(err) {
		return nil, fmt.Errorf("reading the counters of table %s: %w", h.owner.Antispoof, err)
	}
	return msgs, nil
}

// forgedBy returns the packets that the elements of the set "forged" have counted. Their keys are
// priorities, which are addresses.
func forgedBy(msgs [][]byte) map[netip.Addr]uint64 {
	out := map[netip.Addr]uint64{}
	for _, b := range readBounds(msgs) {
		priority := binary.NativeEndian.Uint32(binary.BigEndian.AppendUint32(nil, b.at))
		out[netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, priority)))] += b.packets
	}
	return out
}

// DropReasons implements dataplane.DropCounter. Only rules that drop packets have counters.
func (h *Host) DropReasons() (map[string]uint64, error) {
	reasons := map[string]uint64{}
	for _, t := range h.owner.Nftables {
		family := nftables.TableFamily(nftFamilies[t.Family])
		msgs, err := h.nft(family, unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, unix.NFTA_RULE_TABLE, t.Name)
		if err != nil && !netlink.Gone(err) && !lacksFamily(err) {
			return nil, fmt.Errorf("reading the counters of table %s: %w", t.Name, err)
		}
		for _, m := range msgs {
			reason, packets, counts := ruleCounter(m)
			if counts && reason != "" {
				reasons[reason] += packets
			}
		}
	}
	return reasons, nil
}

// ruleCounter returns the reason for which a rule drops packets, and the packets that its counter
// has counted, if it has one.
func ruleCounter(m []byte) (reason string, packets uint64, counts bool) {
	comment := ""
	for t, v := range netlink.Attrs(m[nl.SizeofNfgenmsg:]) {
		switch t {
		case unix.NFTA_RULE_USERDATA:
			comment, _ = userdata.GetString(v, userdata.TypeComment)
		case unix.NFTA_RULE_EXPRESSIONS:
			for _, expression := range netlink.Attrs(v) {
				if n, is := counterOf(expression); is {
					packets = n
					counts = true
				}
			}
		}
	}
	return dataplane.DropReason(comment), packets, counts
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
