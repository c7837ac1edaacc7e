//go:build linux

package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"subctl/dataplane"
	"subctl/dataplane/kernel/conntrack"
	"subctl/dataplane/kernel/link"
	"subctl/dataplane/kernel/netlink"
	"subctl/dataplane/kernel/nft"

	vnl "github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// ReadNetwork returns what the calling thread's network namespace has.
func ReadNetwork() (n dataplane.Network, err error) {
	h, err := vnl.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return n, fmt.Errorf("opening netlink socket: %w", err)
	}
	defer h.Close()
	n.IPsec = link.IPsecEngine()
	links, err1 := netlink.Whole(h.LinkList)
	addrs, err2 := netlink.Whole(func() ([]vnl.Addr, error) { return h.AddrList(nil, vnl.FAMILY_ALL) })
	routes, err3 := netlink.Whole(func() ([]vnl.Route, error) {
		return h.RouteListFiltered(vnl.FAMILY_V4, &vnl.Route{Table: unix.RT_TABLE_UNSPEC}, vnl.RT_FILTER_TABLE)
	})
	rules, err4 := netlink.Whole(func() ([]vnl.Rule, error) { return h.RuleList(vnl.FAMILY_V4) })
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return n, fmt.Errorf("reading the network: %w", err)
	}
	names := map[int]string{}
	for _, l := range links {
		a := l.Attrs()
		names[a.Index] = a.Name
		d := dataplane.NetDevice{
			Name:     a.Name,
			Index:    a.Index,
			MAC:      a.HardwareAddr.String(),
			Loopback: a.RawFlags&unix.IFF_LOOPBACK != 0,
			ARP:      byARP(a, addrs),
		}
		d.Up = a.RawFlags&unix.IFF_UP != 0 && a.RawFlags&unix.IFF_RUNNING != 0
		if s := a.Statistics; s != nil {
			d.Received = s.RxPackets
			d.Sent = s.TxPackets
		}
		for _, addr := range addrs {
			if addr.LinkIndex == a.Index {
				d.Addrs = append(d.Addrs, addrPrefix(addr))
			}
		}
		n.Devices = append(n.Devices, d)
	}
	slices.SortFunc(n.Devices, func(a, b dataplane.NetDevice) int { return cmp.Compare(a.Name, b.Name) })
	for _, r := range routes {
		if r.Table != unix.RT_TABLE_LOCAL {
			n.Routes = append(n.Routes, netRoutes(r, names)...)
		}
	}
	for _, r := range rules {
		n.Rules = append(n.Rules, netRule(r))
	}
	return n, nil
}

// byARP returns those of the IPv4 addresses of a device that its neighbours find by ARP.
func byARP(d *vnl.LinkAttrs, addrs []vnl.Addr) (out []netip.Addr) {
	if d.EncapType != "ether" || d.RawFlags&(unix.IFF_LOOPBACK|unix.IFF_NOARP|unix.IFF_POINTOPOINT) != 0 {
		return nil
	}
	for _, a := range addrs {
		if ip := netlink.Addr(a.IP); a.LinkIndex == d.Index && ip.Is4() && a.Scope < unix.RT_SCOPE_HOST {
			out = append(out, ip)
		}
	}
	return out
}

// netRoutes returns a route, once for each of its next hops.
func netRoutes(r vnl.Route, names map[int]string) (out []dataplane.NetRoute) {
	types := map[int]string{
		unix.RTN_UNICAST:     "unicast",
		unix.RTN_BLACKHOLE:   "blackhole",
		unix.RTN_UNREACHABLE: "unreachable",
		unix.RTN_THROW:       "throw",
		unix.RTN_PROHIBIT:    "prohibit",
	}
	scopes := map[vnl.Scope]string{
		unix.RT_SCOPE_UNIVERSE: "global",
		unix.RT_SCOPE_LINK:     "link",
		unix.RT_SCOPE_HOST:     "host",
	}
	base := dataplane.NetRoute{
		Table:    r.Table,
		Type:     cmp.Or(types[r.Type], strconv.Itoa(r.Type)),
		Dst:      netip.PrefixFrom(netip.IPv4Unspecified(), 0),
		Src:      netlink.Addr(r.Src),
		Metric:   r.Priority,
		Protocol: int(r.Protocol),
		Scope:    cmp.Or(scopes[r.Scope], strconv.Itoa(int(r.Scope))),
	}
	if !isDefault(r) {
		base.Dst = destination(r.Dst)
	}
	if len(r.MultiPath) == 0 {
		base.Via = netlink.Addr(r.Gw)
		base.Dev = names[r.LinkIndex]
		return append(out, base)
	}
	for _, hop := range r.MultiPath {
		base.Via = netlink.Addr(hop.Gw)
		base.Dev = names[hop.LinkIndex]
		out = append(out, base)
	}
	return out
}

func netRule(r vnl.Rule) dataplane.NetRule {
	out := dataplane.NetRule{Priority: max(r.Priority, 0), Not: r.Invert, IIF: r.IifName, Mark: r.Mark, Table: r.Table}
	if r.Mask != nil {
		out.Mask = *r.Mask
	}
	if r.Type != 0 && r.Type != nl.FR_ACT_TO_TBL {
		out.Table = 0
	}
	of := func(n *net.IPNet) (p netip.Prefix) {
		if n != nil {
			p = destination(n)
		}
		return p
	}
	out.Src = of(r.Src)
	out.Dst = of(r.Dst)
	return out
}

// rpFilter is the setting that concerns all devices: a device uses the greater of it and its own.
const rpFilter = "/proc/sys/net/ipv4/conf/all/rp_filter"

// Forward makes the kernel of the calling thread's network namespace forward packets of devices,
// from whichever device their sources are reached: with several uplinks, this cannot be told by the
// main table. Devices that do not exist are left out. It also makes the kernel count packets and
// bytes of the connections that begin from now on, where it may.
func Forward(names []string) error {
	conn, err := netlink.Dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conntrack.Count() // packets are forwarded without counters, too
	return errors.Join(link.New(link.Config{Conn: conn}).SetConf(names, func(c dataplane.Conf) dataplane.Conf {
		c.Forwarding = 1
		c.RPFilter = 0
		return c
	}), noFilter())
}

// StopForwarding makes the kernel of the calling thread's network namespace forward nothing, unless
// it has a table of nftables, which then decides what is forwarded. A pod has the setting of its
// node at first, which usually is to forward everything.
func StopForwarding(unless string) error {
	network, err := ReadNetwork()
	if err != nil {
		return err
	}
	conn, err := netlink.Dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	switch has, err := nft.Has(conn, unless); {
	case err != nil:
		return fmt.Errorf("looking for table %s: %w", unless, err)
	case has:
		return nil
	}
	var names []string
	for _, d := range network.Devices {
		names = append(names, d.Name)
	}
	return link.New(link.Config{Conn: conn}).SetConf(names, func(c dataplane.Conf) dataplane.Conf {
		c.Forwarding = 0
		return c
	})
}

// noFilter sets rpFilter to 0.
func noFilter() error {
	text, err := os.ReadFile(rpFilter)
	if err != nil {
		return fmt.Errorf("reading net.ipv4.conf.all.rp_filter: %w", err)
	}
	if strings.TrimSpace(string(text)) == "0" {
		return nil
	}
	if err := os.WriteFile(rpFilter, []byte("0"), 0o600); err != nil {
		return fmt.Errorf(
			"net.ipv4.conf.all.rp_filter is %s, so the kernel would drop packets that return through another uplink: run the pod privileged, or set it to 0: %w",
			strings.TrimSpace(string(text)), err)
	}
	return nil
}

// Neighbours returns the neighbours of IPv4 and IPv6 of the calling thread's network namespace, at
// most so many. Entries of multicast, which need no resolution, are left out.
func Neighbours(most int) ([]dataplane.NetNeighbour, error) {
	h, err := vnl.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("opening netlink socket: %w", err)
	}
	defer h.Close()
	links, err1 := netlink.Whole(h.LinkList)
	all, err2 := netlink.Whole(func() ([]vnl.Neigh, error) { return h.NeighList(0, vnl.FAMILY_ALL) })
	if err := errors.Join(err1, err2); err != nil {
		return nil, fmt.Errorf("listing neighbours: %w", err)
	}
	names := map[int]string{}
	for _, l := range links {
		names[l.Attrs().Index] = l.Attrs().Name
	}
	states := map[int]string{
		vnl.NUD_REACHABLE: "reachable", vnl.NUD_STALE: "stale", vnl.NUD_DELAY: "delay", vnl.NUD_PROBE: "probe",
		vnl.NUD_INCOMPLETE: "incomplete", vnl.NUD_FAILED: "failed", vnl.NUD_PERMANENT: "permanent",
	}
	var out []dataplane.NetNeighbour
	for _, n := range all {
		if state := states[n.State]; state != "" && names[n.LinkIndex] != "" {
			out = append(
				out,
				dataplane.NetNeighbour{
					Dev:   names[n.LinkIndex],
					IP:    netlink.Addr(n.IP),
					MAC:   n.HardwareAddr.String(),
					State: state,
				},
			)
		}
	}
	slices.SortFunc(out,
		func(a, b dataplane.NetNeighbour) int { return cmp.Or(cmp.Compare(a.Dev, b.Dev), a.IP.Compare(b.IP)) })
	return out[:min(len(out), most)], nil
}
