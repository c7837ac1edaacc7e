//go:build linux

package conntrack

import (
	"context"
	"fmt"
	"net/netip"
	"syscall"

	"subctl/dataplane"
	"subctl/dataplane/kernel/netlink"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"
)

// mostTolerated bounds how many connections one call of Flows changes, and so its time, to some
// tens of milliseconds, and its memory: other clusters decide how many connections there are. The
// others follow with the next calls.
const mostTolerated = 2000

// TolerateNew looks at newFlowsPerSecond new connections at most, which takes about 4 % of a
// processor, 7 µs each (BenchmarkTolerateNew). The kernel tells it of all connections of the node,
// and other clusters decide how many there are. If there are more, the kernel drops notifications.
const newFlowsPerSecond, newFlowsAtOnce = 5000, 1000

// TolerateNew tolerates connections as they begin, until the context ends: see
// dataplane.FlowTolerator.
func (t *Table) TolerateNew(ctx context.Context, in func(netip.Addr) bool) (<-chan error, error) {
	conn, err := netlink.DialNetfilter()
	if err != nil {
		return nil, err
	}
	news, err := netlink.Subscribe(unix.NETLINK_NETFILTER, unix.NFNLGRP_CONNTRACK_NEW)
	if err != nil {
		conn.Close()
		return nil, err
	}
	context.AfterFunc(ctx, news.Close)
	pace := rate.NewLimiter(newFlowsPerSecond, newFlowsAtOnce)
	ended := make(chan error, 1)
	go func() {
		defer conn.Close()
		defer news.Close()
		ended <- news.Receive(func(m syscall.NetlinkMessage) bool {
			if pace.Wait(ctx) != nil {
				return false
			}
			if c, ok := parseTracked(m.Data); ok {
				l := tolerance{in: in, young: true}
				l.add(c, m.Data)
				_ = l.end(conn) // the next reading tells
			}
			return false
		}, func() {})
	}()
	return ended, nil
}

// tcpClose is TCP_CONNTRACK_CLOSE in linux/netfilter/nf_conntrack_tcp.h. The states from
// dataplane.TCPEstablished to it follow the end of a connection.
const tcpClose = 8

// tolerance collects the changes of a FlowQuery that tolerates connections.
type tolerance struct {
	in    func(netip.Addr) bool // whether an address is in its networks
	young bool                  // connections that are not established count, too
	// live and ended are the changes. Connections that have ended matter, too: the kernel keeps
	// them for up to two minutes (nf_conntrack_tcp_timeout_time_wait), and a later one with the
	// same ports may have begun at another gateway, and come here. They are changed after the live
	// ones: there can be very many.
	live, ended [][]byte
}

// add takes an entry of a dump. The flag that it is to get is the one that the kernel gives
// connections of which it has not seen the beginning (tcp_new in
// net/netfilter/nf_conntrack_proto_tcp.c). The sysctl nf_conntrack_tcp_be_liberal would change all
// connections of the node.
func (l *tolerance) add(t dataplane.Tracked, entry []byte) {
	if t.Proto != Protocol(unix.IPPROTO_TCP) || !translated(t) || !l.in(t.Src.Addr()) && !l.in(t.Dst.Addr()) ||
		liberal(entry) {
		return
	}
	list := &l.live
	switch {
	case t.State == dataplane.TCPEstablished:
	case t.State > dataplane.TCPEstablished && t.State <= tcpClose:
		list = &l.ended
	case !l.young:
		return
	}
	if len(*list) == mostTolerated {
		return
	}
	flags := []byte{tcpLiberal, tcpLiberal} // struct nf_ct_tcp_flags: the flags, and which of them change
	tcp := netlink.PutAttr(netlink.PutAttr(nil, ctaProtoInfoTCPFlagsOriginal, flags), ctaProtoInfoTCPFlagsReply, flags)
	*list = append(
		*list,
		netlink.PutAttr(sameEntry(entry), ctaProtoInfo|unix.NLA_F_NESTED,
			netlink.PutAttr(nil, ctaProtoInfoTCP|unix.NLA_F_NESTED, tcp)),
	)
}

// end makes the changes.
func (l *tolerance) end(conn *netlink.Conn) error {
	all := append(l.live, l.ended...)
	if err := sendChanges(conn, ctNew, all[:min(len(all), mostTolerated)]); err != nil {
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
				if (typ == ctaProtoInfoTCPFlagsOriginal || typ == ctaProtoInfoTCPFlagsReply) && len(v) > 0 &&
					v[0]&tcpLiberal != 0 {
					n++
				}
			}
		}
	}
	return n == 2
}
