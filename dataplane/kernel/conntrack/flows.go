//go:build linux

package conntrack

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"subctl/dataplane"
	"subctl/dataplane/kernel/netlink"
	"subctl/internal/prefix"

	"golang.org/x/sys/unix"
)

// Flows returns what a query asks of the connections: see dataplane.FlowCounter.
func (t *Table) Flows(q dataplane.FlowQuery) (out dataplane.Flows, err error) {
	established := establishedTimeout()
	counts := dataplane.Between(q.Networks, q.Except)
	uses := dataplane.NewSourceUses(q.Sources)
	rigid := tolerance{in: func(netip.Addr) bool { return false }}
	if q.Tolerate {
		rigid.in = prefix.ContainsFunc(q.Networks)
	}
	err = t.tracking.Each(unix.NFNL_SUBSYS_CTNETLINK<<8|ctGet, netlink.NetfilterHeader(unix.AF_INET), func(m []byte) {
		c, ok := parseTracked(m)
		if !ok {
			return
		}
		uses.Add(c)
		rigid.add(c, m)
		if !counts(c) || !c.Live(established) {
			return
		}
		out.Count++
		if out.Some = append(out.Some, c.Flow); len(out.Some) >= 2*dataplane.MaxFlows {
			out.Some = shortened(out.Some)
		}
	})
	if err != nil {
		return dataplane.Flows{}, fmt.Errorf("listing conntrack entries: %w", err)
	}
	out.Some = shortened(out.Some)
	out.Sources = uses.Fullest()
	out.Rigid = rigid.end(t.tracking)
	return out, nil
}

// shortened returns the first flows.
func shortened(flows []dataplane.Flow) []dataplane.Flow {
	slices.SortFunc(flows, func(a, b dataplane.Flow) int {
		return cmp.Or(strings.Compare(a.Proto, b.Proto), a.Src.Compare(b.Src), a.Dst.Compare(b.Dst))
	})
	return flows[:min(len(flows), dataplane.MaxFlows)]
}

// establishedFile has the time in seconds after which the kernel deletes the entry of a TCP
// connection without packets. kube-proxy sets it.
const establishedFile = "/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_established"

// establishedTimeout returns that time, or the kernel's default if it cannot be read.
func establishedTimeout() time.Duration {
	text, err := os.ReadFile(establishedFile)
	if n, bad := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && bad == nil {
		return time.Duration(n) * time.Second
	}
	return 5 * 24 * time.Hour
}

// parseTracked returns an entry; false if it is not one of IPv4.
func parseTracked(m []byte) (t dataplane.Tracked, ok bool) {
	if len(m) < unix.SizeofNlAttr {
		return t, false
	}
	for typ, v := range netlink.Attrs(m[unix.SizeofNlAttr:]) { // struct nfgenmsg has the same size
		switch typ {
		case ctaTupleOrig:
			t.Flow, ok = parseTuple(v)
		case ctaTupleReply:
			reply, _ := parseTuple(v)
			t.Replies = reply.Src
			t.Returns = reply.Dst
		case ctaTimeout:
			if len(v) == 4 {
				t.Left = time.Duration(binary.BigEndian.Uint32(v)) * time.Second
			}
		case ctaProtoInfo:
			t.State = parseTCPState(v)
		}
	}
	return t, ok
}

func parseTCPState(info []byte) uint8 {
	for typ, v := range netlink.Attrs(info) {
		if typ != ctaProtoInfoTCP {
			continue
		}
		for typ, v := range netlink.Attrs(v) {
			if typ == ctaProtoInfoTCPState && len(v) > 0 {
				return v[0]
			}
		}
	}
	return 0
}

func parseTuple(b []byte) (f dataplane.Flow, ok bool) {
	var src, dst netip.Addr
	var from, to uint16
	for typ, v := range netlink.Attrs(b) {
		for field, v := range netlink.Attrs(v) {
			switch {
			case typ == ctaTupleIP && field == ctaSrc:
				src = netlink.Addr(v)
			case typ == ctaTupleIP && field == ctaDst:
				dst = netlink.Addr(v)
			case typ == ctaTupleProto && field == ctaProtoNum && len(v) > 0:
				f.Proto = Protocol(v[0])
			case typ == ctaTupleProto && field == ctaProtoSrcPort && len(v) == 2:
				from = binary.BigEndian.Uint16(v)
			case typ == ctaTupleProto && field == ctaProtoDstPort && len(v) == 2:
				to = binary.BigEndian.Uint16(v)
			}
		}
	}
	f.Src = netip.AddrPortFrom(src, from)
	f.Dst = netip.AddrPortFrom(dst, to)
	return f, src.Is4() && dst.Is4()
}

// Protocol returns the name of an IP protocol, or its number.
func Protocol(n uint8) string {
	switch n {
	case unix.IPPROTO_TCP:
		return "tcp"
	case unix.IPPROTO_UDP:
		return "udp"
	case unix.IPPROTO_ICMP:
		return "icmp"
	}
	return strconv.Itoa(int(n))
}
