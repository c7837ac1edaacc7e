//go:build linux

package conntrack

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"

	"subctl/dataplane"
	"subctl/dataplane/kernel/netlink"

	vnl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Connections returns the IPv4 connections of the calling thread's network namespace, at most so
// many.
func Connections(most int) ([]dataplane.Connection, error) {
	h, err := vnl.NewHandle(unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("opening netlink socket: %w", err)
	}
	defer h.Close()
	flows, err := h.ConntrackTableList(vnl.ConntrackTable, unix.AF_INET)
	if err != nil && !errors.Is(err, vnl.ErrDumpInterrupted) {
		return nil, fmt.Errorf("listing connections: %w", err)
	}
	var out []dataplane.Connection
	protocols := map[uint8]string{unix.IPPROTO_TCP: "tcp", unix.IPPROTO_UDP: "udp", unix.IPPROTO_ICMP: "icmp"}
	flow := func(t vnl.IPTuple) dataplane.Tuple {
		return dataplane.Tuple{
			Src:     netip.AddrPortFrom(netlink.Addr(t.SrcIP), t.SrcPort),
			Dst:     netip.AddrPortFrom(netlink.Addr(t.DstIP), t.DstPort),
			Packets: t.Packets,
			Bytes:   t.Bytes,
		}
	}
	for _, f := range flows[:min(len(flows), most)] {
		out = append(out, dataplane.Connection{
			Protocol: cmp.Or(protocols[f.Forward.Protocol], strconv.Itoa(int(f.Forward.Protocol))),
			State:    tcpState(f.ProtoInfo),
			Request:  flow(f.Forward), Response: flow(f.Reverse), Mark: f.Mark,
		})
	}
	return out, nil
}

// tcpStates are the names that conntrack(8) has for the states of
// linux/netfilter/nf_conntrack_tcp.h.
var tcpStates = []string{
	"NONE", "SYN_SENT", "SYN_RECV", "ESTABLISHED", "FIN_WAIT", "CLOSE_WAIT", "LAST_ACK", "TIME_WAIT", "CLOSE", "SYN_SENT2",
}

// tcpState returns the name of the state of a TCP connection, "" of other protocols.
func tcpState(info vnl.ProtoInfo) string {
	tcp, is := info.(*vnl.ProtoInfoTCP)
	if !is || int(tcp.State) >= len(tcpStates) {
		return ""
	}
	return tcpStates[tcp.State]
}

// Count makes the kernel count packets and bytes of the connections that begin from now on in the
// calling thread's network namespace.
func Count() error {
	return os.WriteFile("/proc/sys/net/netfilter/nf_conntrack_acct", []byte("1"), 0o600)
}
