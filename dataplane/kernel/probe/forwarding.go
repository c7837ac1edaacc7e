//go:build linux

package probe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"subctl/dataplane"
	"subctl/dataplane/kernel/netlink"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	vishvananda "github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// A probe of what the node forwards. The packet is sent on a VXLAN device to the device's own MAC
// address. The FDB leads it to the node's own address, and the kernel then skips the outer packet
// (vxlan_encap_bypass in drivers/net/vxlan): it arrives on the device as if another node had sent
// it. A table, which exists only meanwhile, has the kernel trace it through all rules of nftables,
// those of iptables-nft among them, and drops it where it would leave the node.

// forwardWait is the time after which a packet that no rule has dropped, and that did not get
// through, is lost. It takes far less than a millisecond.
const forwardWait = time.Second

// Numbers of linux/netfilter/nf_tables.h and nfnetlink.h.
const (
	traceGroup    = 9  // NFNLGRP_NFTRACE
	traceMessage  = 17 // NFT_MSG_TRACE
	tableOwned    = 2  // NFT_TABLE_F_OWNER: the table goes with the socket that made it
	traceTable    = 1
	traceChain    = 2
	traceRule     = 3
	traceType     = 4
	traceVerdict  = 5
	traceID       = 6
	tracePolicy   = 16
	tracedPolicy  = 1 // of traceType
	tracedRule    = 3
	verdictCode   = 1
	probePriority = -400
)

// Forwarding probes what the node forwards, in the calling thread's network namespace, unless
// nftables' rules still have the generation last: then the result has no more than the generation.
func Forwarding(p dataplane.ForwardProbe, last uint32) (out dataplane.Forwarded, err error) {
	conn, err := netlink.DialNetfilter()
	if err != nil {
		return out, err
	}
	defer conn.Close()
	defer func() { out.Generation = conn.Generation() }() // after the table is gone
	if generation := conn.Generation(); generation != 0 && generation == last {
		return out, nil
	}
	pod := false
	if out.To, pod, err = podAddress(p); err != nil || !out.To.IsValid() {
		return out, err
	}
	sub, err := netlink.Subscribe(unix.NETLINK_NETFILTER, traceGroup)
	if err != nil {
		return out, err
	}
	defer sub.Close()
	remove, err := traceTableOf(p, out.To)
	if err != nil {
		return out, err
	}
	defer remove()
	got := make(chan dataplane.Dropper, 1)
	go follow(sub, got)
	if err := inject(p, out.To); err != nil {
		return out, err
	}
	select {
	case by := <-got:
		switch {
		case by.Table == dataplane.ForwardTable:
			out.Known = true
		case !ofPods(by):
			out.Known = true
			out.By = by
		}
	case <-time.After(forwardWait):
		if pod { // its network policies, if they are rules of iptables-legacy, are not traced
			break
		}
		names, err := os.ReadFile("/proc/thread-self/net/ip_tables_names")
		if err == nil && strings.Contains(string(names), "filter") {
			out.Known = true
			out.By = dataplane.Dropper{Legacy: true}
		}
	}
	return out, nil
}

// ofPods reports whether what has dropped a packet decides about single pods, as network policies
// do, or is ours: then nothing is known about the others.
func ofPods(by dataplane.Dropper) bool {
	begins := func(name string, prefixes ...string) bool {
		return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
	}
	return begins(by.Chain, "SUBMARINER", "cali-", "KUBE-", "WEAVE-NPC", "CILIUM", "ANTREA") ||
		begins(by.Table, "submariner-", "calico", "kube-", "kindnet", "cilium", "antrea")
}

// podAddress returns an address in the pod networks to which a route of the node leads on a device
// of pods: of a pod, or one beside the pods on a bridge. pod specifies that it may be a pod's.
func podAddress(p dataplane.ForwardProbe) (found netip.Addr, pod bool, err error) {
	main := &vishvananda.Route{Table: unix.RT_TABLE_MAIN}
	routes, err := vishvananda.RouteListFiltered(vishvananda.FAMILY_V4, main, vishvananda.RT_FILTER_TABLE)
	if err != nil {
		return found, false, fmt.Errorf("listing routes: %w", err)
	}
	best := -1 // the length of its network
	for _, r := range routes {
		if r.Dst == nil || r.Gw != nil || r.Type != unix.RTN_UNICAST || len(r.MultiPath) > 0 {
			continue
		}
		ip, _ := netip.AddrFromSlice(r.Dst.IP.To4())
		bits, _ := r.Dst.Mask.Size()
		isWithin := func(n netip.Prefix) bool { return n.Bits() <= bits && n.Contains(ip) }
		if bits <= best || !slices.ContainsFunc(p.Pods, isWithin) {
			continue
		}
		at := binary.BigEndian.Uint32(ip.AsSlice())
		if bits < 31 { // the last address before the one for broadcasts, and before the node's own
			at |= 1<<(32-bits) - 2
		}
		to := netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, at)))
		if own, _ := netip.AddrFromSlice(r.Src.To4()); own == to {
			to = to.Prev()
		}
		best = bits
		found = to
	}
	if !found.IsValid() {
		found = p.Far
	}
	return found, best > 30, nil
}

// traceTableOf makes the table that traces a probe, and returns what removes it.
func traceTableOf(p dataplane.ForwardProbe, to netip.Addr) (remove func(), err error) {
	tx, err := nftables.New(nftables.AsLasting())
	if err != nil {
		return nil, err
	}
	t := &nftables.Table{Family: nftables.TableFamilyIPv4, Name: dataplane.ForwardTable, Flags: tableOwned}
	priority := nftables.ChainPriority(probePriority)
	dev := make([]byte, unix.IFNAMSIZ)
	copy(dev, p.Dev)
	is := []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: unix.NFT_REG_1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: unix.NFT_REG_1, Data: dev},
		&expr.Payload{
			DestRegister: unix.NFT_REG_1, Base: expr.PayloadBaseNetworkHeader, Offset: srcOffset, Len: 8,
		},
		&expr.Cmp{Op: expr.CmpOpEq, Register: unix.NFT_REG_1, Data: append(p.From.AsSlice(), to.AsSlice()...)},
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: unix.NFT_REG_1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: unix.NFT_REG_1, Data: []byte{unix.IPPROTO_TCP}},
		&expr.Payload{DestRegister: unix.NFT_REG_1, Base: expr.PayloadBaseTransportHeader, Len: 4},
		&expr.Cmp{Op: expr.CmpOpEq, Register: unix.NFT_REG_1, Data: ports()},
	}
	add := func(hook *nftables.ChainHook, name string, does ...expr.Any) {
		c := tx.AddChain(&nftables.Chain{
			Name: name, Table: t, Type: nftables.ChainTypeFilter, Hooknum: hook, Priority: &priority,
		})
		tx.AddRule(&nftables.Rule{Table: t, Chain: c, Exprs: slices.Concat(is, does)})
	}
	tx.AddTable(t)
	add(nftables.ChainHookPrerouting, "arrives",
		&expr.Immediate{Register: unix.NFT_REG_1, Data: []byte{1}},
		&expr.Meta{Key: expr.MetaKeyNFTRACE, SourceRegister: true, Register: unix.NFT_REG_1})
	add(nftables.ChainHookPostrouting, "leaves", &expr.Verdict{Kind: expr.VerdictDrop})
	if err := tx.Flush(); err != nil {
		_ = tx.CloseLasting() // the table goes with it
		return nil, fmt.Errorf("adding table %s, which needs Linux 5.12: %w", t.Name, err)
	}
	return func() {
		tx.DelTable(t)
		_ = errors.Join(tx.Flush(), tx.CloseLasting()) // if it is not deleted, it goes with the socket
	}, nil
}

// ports are the source and the destination port of a probe. The number is one for which no server
// of pods waits.
func ports() []byte {
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, dataplane.IntraPort), dataplane.IntraPort)
}

// follow sends what has dropped the packet that is traced.
func follow(sub *netlink.Subscription, got chan<- dataplane.Dropper) {
	id := ""
	_ = sub.Receive(func(m syscall.NetlinkMessage) bool {
		if m.Header.Type != unix.NFNL_SUBSYS_NFTABLES<<8|traceMessage || len(m.Data) < nl.SizeofNfgenmsg {
			return false
		}
		by, of, drops := parseTrace(m.Data)
		if id == "" && by.Table == dataplane.ForwardTable {
			id = of // others may trace as well
		}
		if drops && of == id {
			select {
			case got <- by:
			default:
			}
		}
		return false
	}, func() {}) // ends when the socket is closed; what is lost is not known
}

// parseTrace returns where a packet is, its number, and whether it is dropped there.
func parseTrace(b []byte) (at dataplane.Dropper, id string, drops bool) {
	at.Family = map[byte]string{
		unix.NFPROTO_INET: "inet", unix.NFPROTO_IPV4: "ip",
		unix.NFPROTO_NETDEV: "netdev", unix.NFPROTO_BRIDGE: "bridge",
	}[b[0]]
	kind := uint32(0)
	accepted := true
	for t, v := range netlink.Attrs(b[nl.SizeofNfgenmsg:]) {
		switch {
		case t == traceTable:
			at.Table = netlink.Text(v)
		case t == traceChain:
			at.Chain = netlink.Text(v)
		case t == traceRule && len(v) == 8:
			at.Rule = binary.BigEndian.Uint64(v)
		case t == traceType && len(v) == 4:
			kind = binary.BigEndian.Uint32(v)
		case t == traceID:
			id = string(v)
		case t == tracePolicy && len(v) == 4:
			accepted = binary.BigEndian.Uint32(v) != 0
		case t == traceVerdict:
			for t, code := range netlink.Attrs(v) {
				if t == verdictCode && len(code) == 4 {
					drops = binary.BigEndian.Uint32(code) == 0 // NF_DROP
				}
			}
		}
	}
	switch kind {
	case tracedPolicy:
		at.Rule = 0
		return at, id, !accepted
	case tracedRule:
		return at, id, drops
	}
	return at, id, false
}

// inject sends a probe.
func inject(p dataplane.ForwardProbe, to netip.Addr) error {
	hw, err := net.ParseMAC(p.MAC)
	if err != nil {
		return err
	}
	dev, err := net.InterfaceByName(p.Dev)
	if err != nil {
		return fmt.Errorf("finding device %s: %w", p.Dev, err)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening a packet socket: %w", err)
	}
	defer unix.Close(fd)
	at := &unix.SockaddrLinklayer{Protocol: networkOrder(unix.ETH_P_IP), Ifindex: dev.Index, Halen: uint8(len(hw))}
	copy(at.Addr[:], hw)
	if err := unix.Sendto(fd, syn(p.From, to), 0, at); err != nil {
		return fmt.Errorf("sending a packet on %s: %w", p.Dev, err)
	}
	return nil
}

// syn returns an IPv4 packet that opens a TCP connection.
func syn(from, to netip.Addr) []byte {
	const ip, tcp = 20, 20
	b := make([]byte, ip+tcp)
	b[0] = 4<<4 | ip/4
	b[8] = 64
	b[9] = unix.IPPROTO_TCP
	binary.BigEndian.PutUint16(b[2:], ip+tcp)
	copy(b[srcOffset:], from.AsSlice())
	copy(b[dstOffset:], to.AsSlice())
	binary.BigEndian.PutUint16(b[csumOffset:], sum16(b[:ip]))
	t := b[ip:]
	copy(t, ports())
	t[12] = tcp / 4 << 4
	t[13] = 2 // SYN
	binary.BigEndian.PutUint16(t[14:], 1024)
	pseudo := slices.Concat(b[srcOffset:ip], []byte{0, unix.IPPROTO_TCP, 0, tcp}, t)
	binary.BigEndian.PutUint16(t[16:], sum16(pseudo))
	return b
}

// sum16 returns the Internet checksum (RFC 1071) of an even number of bytes.
func sum16(b []byte) uint16 {
	sum := uint32(0)
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	sum = sum>>16 + sum&0xffff
	return ^uint16(sum + sum>>16)
}
