//go:build linux

package kernel

import (
	"encoding/binary"
	"slices"
	"syscall"

	"subctl/dataplane"
	"subctl/dataplane/kernel/iptables"
	"subctl/dataplane/kernel/link"
	"subctl/dataplane/kernel/netlink"
	"subctl/dataplane/kernel/route"

	vnl "github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// filter selects the notifications that matter. Most do not: containers that start and
// stop, and the routes and rules of other programs.
type filter struct {
	devices map[int]bool // the owners' devices, by index
}

func newFilter(c *netlink.Conn) (*filter, error) {
	f := &filter{devices: map[int]bool{}}
	for _, o := range dataplane.Owners() {
		devs, err := link.New(link.Config{Owner: o, Conn: c}).Own()
		if err != nil {
			return nil, err
		}
		for _, index := range devs {
			f.devices[index] = true
		}
	}
	return f, nil
}

// route reports whether a message of rtnetlink matters.
func (f *filter) route(m syscall.NetlinkMessage) bool {
	switch m.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		return f.link(m)
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		return true // ours, or one of dataplane.Facts
	case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
		return f.neigh(m)
	case unix.RTM_NEWNETCONF:
		n, ok := netlink.Number(m.Data, 4, netconfIndex) // struct netconfmsg is one byte, padded
		return ok && f.devices[int(n)]
	}
	return route.Matters(m)
}

// isNetwork reports whether a message is about what ReadNetwork returns.
func isNetwork(m syscall.NetlinkMessage) bool {
	switch m.Header.Type {
	case unix.RTM_NEWLINK,
		unix.RTM_DELLINK,
		unix.RTM_NEWADDR,
		unix.RTM_DELADDR,
		unix.RTM_NEWROUTE,
		unix.RTM_DELROUTE,
		unix.RTM_NEWRULE,
		unix.RTM_DELRULE:
		return true
	}
	return false
}

const netconfIndex = 1 // NETCONFA_IFINDEX, linux/netconf.h

// link reports whether a message about a device matters, and records the owners' devices.
func (f *filter) link(m syscall.NetlinkMessage) bool {
	if len(m.Data) < unix.SizeofIfInfomsg {
		return false
	}
	index := int(nl.DeserializeIfInfomsg(m.Data).Index)
	was := f.devices[index]
	name := ""
	for t, v := range netlink.Attrs(m.Data[unix.SizeofIfInfomsg:]) {
		if t == unix.IFLA_IFNAME {
			name = netlink.Text(v)
		}
	}
	delete(f.devices, index)
	if m.Header.Type == unix.RTM_NEWLINK && ours(name) {
		f.devices[index] = true
	}
	return was || f.devices[index]
}

// neigh reports whether a message about an ARP or FDB entry matters. An unsuccessful lookup
// of a neighbour does not.
func (f *filter) neigh(m syscall.NetlinkMessage) bool {
	if len(m.Data) < unix.SizeofNdMsg || !f.devices[int(netlink.U32(m.Data[4:]))] {
		return false
	}
	const looking = vnl.NUD_INCOMPLETE | vnl.NUD_FAILED
	return m.Header.Type == unix.RTM_DELNEIGH || binary.NativeEndian.Uint16(m.Data[8:])&looking == 0
}

// nftNews reports whether a message of nftables matters, in which iptables keeps its rules.
func nftNews(m syscall.NetlinkMessage) bool {
	if len(m.Data) < nl.SizeofNfgenmsg ||
		!slices.Contains([]byte{unix.AF_INET, unix.AF_INET6, unix.NFPROTO_INET}, m.Data[0]) ||
		m.Header.Type>>8 != unix.NFNL_SUBSYS_NFTABLES {
		return false
	}
	for t, v := range netlink.Attrs(m.Data[nl.SizeofNfgenmsg:]) {
		// 1 is the table in all messages: NFTA_TABLE_NAME, NFTA_SET_TABLE and so on
		if t == unix.NFTA_TABLE_NAME && anybodys(func(o dataplane.Owner) bool {
			name := netlink.Text(v)
			return slices.ContainsFunc(o.Nftables, func(t dataplane.Nftable) bool { return t.Name == name })
		}) {
			return true
		}
	}
	if m.Data[0] == unix.AF_INET6 {
		return false // iptables is about IPv4
	}
	var name uint16
	switch m.Header.Type & 0xff {
	case unix.NFT_MSG_DELTABLE:
		return true
	case unix.NFT_MSG_NEWCHAIN, unix.NFT_MSG_DELCHAIN:
		name = unix.NFTA_CHAIN_NAME
	case unix.NFT_MSG_NEWRULE, unix.NFT_MSG_DELRULE:
		name = unix.NFTA_RULE_CHAIN
	default:
		return false
	}
	for t, v := range netlink.Attrs(m.Data[nl.SizeofNfgenmsg:]) {
		if t == name {
			return iptables.Matters(netlink.Text(v))
		}
	}
	return false
}

func anybodys(has func(dataplane.Owner) bool) bool {
	return slices.ContainsFunc(dataplane.Owners(), has)
}
