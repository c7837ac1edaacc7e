//go:build linux

package kernel

import (
	"fmt"
	"net/netip"

	"subctl/dataplane"
	"subctl/dataplane/kernel/netlink"

	"golang.org/x/sys/unix"
)

var _ dataplane.FlowTolerator = (*Host)(nil)

// mostTolerated bounds the time that one call takes, to some tens of milliseconds: other clusters decide how many connections there are. The others
// follow with the next calls.
const mostTolerated = 2000

// Tolerate implements dataplane.FlowTolerator. The flag that it sets is the one that the kernel gives connections of which it has not seen the beginning
// (tcp_new in net/netfilter/nf_conntrack_proto_tcp.c). The sysctl nf_conntrack_tcp_be_liberal would change all connections of the node.
func (h *Host) Tolerate(networks []netip.Prefix) error {
	in, n := dataplane.Within(networks), 0
	err := changeEntries(h.conn, ctNew, netlink.NetfilterHeader(unix.AF_INET), func(entry []byte) []byte {
		t, ok := parseTracked(entry)
		if !ok || t.Proto != protocol(unix.IPPROTO_TCP) || t.State != dataplane.TCPEstablished || !translated(t) || !in(t.Src.Addr()) && !in(t.Dst.Addr()) || liberal(entry) {
			return nil
		}
		if n++; n > mostTolerated {
			return nil
		}
		flags := []byte{tcpLiberal, tcpLiberal} // struct nf_ct_tcp_flags: the flags, and which of them change
		tcp := netlink.PutAttr(netlink.PutAttr(nil, ctaProtoInfoTCPFlagsOriginal, flags), ctaProtoInfoTCPFlagsReply, flags)
		return netlink.PutAttr(sameEntry(entry), ctaProtoInfo|unix.NLA_F_NESTED, netlink.PutAttr(nil, ctaProtoInfoTCP|unix.NLA_F_NESTED, tcp))
	})
	if err != nil {
		return fmt.Errorf("letting connections come back: %w", err)
	}
	return nil
}

// translated reports whether an address or port of a connection is changed to another one.
func translated(t dataplane.Tracked) bool { return t.Replies != t.Dst || t.Returns != t.Src }

// liberal reports whether an entry has the flag in both directions.
func liberal(entry []byte) bool {
	n := 0
	for typ, v := range netlink.Attrs(entry[unix.SizeofNlAttr:]) {
		if typ != ctaProtoInfo {
			continue
		}
		for _, v := range netlink.Attrs(v) {
			for typ, v := range netlink.Attrs(v) {
				if (typ == ctaProtoInfoTCPFlagsOriginal || typ == ctaProtoInfoTCPFlagsReply) && len(v) > 0 && v[0]&tcpLiberal != 0 {
					n++
				}
			}
		}
	}
	return n == 2
}
