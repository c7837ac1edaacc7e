//go:build linux

package nft

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"subctl/dataplane"
	"subctl/dataplane/kernel/netlink"

	"github.com/google/nftables"
	"github.com/google/nftables/userdata"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

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

// Drops returns how many forged packets were dropped, by cluster: see dataplane.DropCounter. Linux
// counts since version 5.7.
func (s *Tables) Drops() (map[string]uint64, error) {
	drops := map[string]uint64{}
	clusters, err := s.counters("clusters")
	if err != nil {
		return nil, err
	}
	nets := readClusters(clusters)
	for _, c := range nets {
		if c.Cluster != "" {
			drops[c.Cluster] += c.packets
		}
	}
	forged, err := s.counters("forged")
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
func (s *Tables) counters(set string) ([][]byte, error) {
	msgs, err := request(s.conn, family4, unix.NFT_MSG_GETSETELEM, unix.NLM_F_DUMP,
		unix.NFTA_SET_ELEM_LIST_TABLE, s.owner.Antispoof, unix.NFTA_SET_ELEM_LIST_SET, set)
	if err != nil && !netlink.Gone(err) {
		return nil, fmt.Errorf("reading the counters of table %s: %w", s.owner.Antispoof, err)
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

// DropReasons returns how many packets were dropped, by reason: see dataplane.DropCounter. Only
// rules that drop packets have counters.
func (s *Tables) DropReasons() (map[string]uint64, error) {
	reasons := map[string]uint64{}
	for _, t := range s.owner.Nftables {
		family := nftables.TableFamily(nftFamilies[t.Family])
		msgs, err := request(s.conn, family, unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, unix.NFTA_RULE_TABLE, t.Name)
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
