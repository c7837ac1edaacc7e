//go:build linux

package kernel

import (
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"

	"subctl/dataplane"
	"subctl/dataplane/kernel/link"
	"subctl/dataplane/kernel/netlink"
	"subctl/dataplane/kernel/nft"
	"subctl/dataplane/kernel/route"

	vnl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ReadFacts returns the facts about the node, read in the calling thread's network
// namespace. A node without a default route has no Device, MTU and PrivateIP.
func ReadFacts() (f dataplane.Facts, err error) {
	f.WireGuard = link.WireGuardEngine()
	f.IPsec = link.IPsecEngine()
	f.NoNexthops = noNexthops()
	f.Resilient = resilientGroups()
	f.HashPolicy = hashPolicy()
	f.NoIPv6Tables = nft.LacksIPv6()
	f.BootID = bootID()
	h, err := vnl.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return f, fmt.Errorf("opening netlink socket: %w", err)
	}
	defer h.Close()
	links, err := netlink.Whole(h.LinkList)
	if err != nil {
		return f, fmt.Errorf("listing devices: %w", err)
	}
	addrs, err := netlink.Whole(func() ([]vnl.Addr, error) { return h.AddrList(nil, vnl.FAMILY_V4) })
	if err != nil {
		return f, fmt.Errorf("listing addresses: %w", err)
	}
	byIndex := map[int]vnl.Link{}
	own := map[int]bool{}
	for _, l := range links {
		if own[l.Attrs().Index] = ours(l.Attrs().Name); !own[l.Attrs().Index] &&
			l.Attrs().RawFlags&unix.IFF_LOOPBACK == 0 {
			byIndex[l.Attrs().Index] = l
		}
	}
	for _, a := range addrs {
		if l := byIndex[a.LinkIndex]; l != nil {
			f.Addrs = append(f.Addrs,
				dataplane.HostAddr{Dev: l.Attrs().Name, MTU: l.Attrs().MTU, Prefix: addrPrefix(a)})
		}
		if own[a.LinkIndex] {
			f.OwnAddrs = append(f.OwnAddrs, addrPrefix(a).Addr())
		}
	}
	slices.SortFunc(f.OwnAddrs, netip.Addr.Compare)
	slices.SortFunc(f.Addrs, func(a, b dataplane.HostAddr) int {
		return cmp.Or(cmp.Compare(a.Dev, b.Dev), a.Prefix.Compare(b.Prefix))
	})

	routes, err := mainRoutes(h)
	if err != nil {
		return f, err
	}
	if f.Resolvers, err = readResolvers(resolvConf); err != nil {
		return f, err
	}
	if err := route.ReadAgents(&f); err != nil {
		return f, err
	}
	f.Networks = networks(f.Addrs, routes, byIndex)
	f.Routers = routers(routes)
	def := defaultRoute(routes)
	if def == nil {
		return f, nil
	}
	if l := byIndex[def.LinkIndex]; l != nil {
		f.Device = l.Attrs().Name
		f.MTU = l.Attrs().MTU
		f.PrivateIP = source(*def, addrs)
	}
	return f, nil
}

// bootID returns Facts.BootID.
var bootID = sync.OnceValue(func() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
})

// ours reports whether a device belongs to any of the owners on nodes.
func ours(device string) bool {
	return slices.ContainsFunc(dataplane.NodeOwners(), func(o dataplane.Owner) bool { return o.OwnsDevice(device) })
}

// mainRoutes returns the IPv4 routes of the main table.
func mainRoutes(h *vnl.Handle) ([]vnl.Route, error) {
	all, err := netlink.Whole(func() ([]vnl.Route, error) {
		return h.RouteListFiltered(vnl.FAMILY_V4, &vnl.Route{Table: unix.RT_TABLE_MAIN}, vnl.RT_FILTER_TABLE)
	})
	if err != nil {
		return nil, fmt.Errorf("listing routes: %w", err)
	}
	return slices.DeleteFunc(all, func(r vnl.Route) bool { return r.Type != unix.RTN_UNICAST }), nil
}

// isDefault reports whether a route is a default route.
func isDefault(r vnl.Route) bool {
	if r.Dst == nil {
		return true
	}
	ones, _ := r.Dst.Mask.Size()
	return ones == 0
}

// defaultRoute returns the default route that the kernel prefers, or nil if there is none.
// Only the first of several next hops counts.
func defaultRoute(routes []vnl.Route) *vnl.Route {
	var best *vnl.Route
	for _, r := range routes {
		if isDefault(r) && (best == nil || r.Priority < best.Priority) {
			best = &r
		}
	}
	if best != nil && best.LinkIndex == 0 && len(best.MultiPath) > 0 {
		best.LinkIndex, best.Gw = best.MultiPath[0].LinkIndex, best.MultiPath[0].Gw
	}
	return best
}

// source returns the source address of packets that leave by a route: the route's own,
// else the first address of the device in the network of the gateway, else the first
// address of the device (inet_select_addr in the kernel's net/ipv4/devinet.c).
func source(r vnl.Route, addrs []vnl.Addr) (ip netip.Addr) {
	if r.Src != nil {
		return netlink.Addr(r.Src)
	}
	for _, a := range addrs {
		if a.LinkIndex != r.LinkIndex || a.Flags&unix.IFA_F_SECONDARY != 0 || a.Scope > unix.RT_SCOPE_UNIVERSE {
			continue
		}
		if a.IPNet.Contains(r.Gw) {
			return addrPrefix(a).Addr()
		}
		if !ip.IsValid() {
			ip = addrPrefix(a).Addr()
		}
	}
	return ip
}

func addrPrefix(a vnl.Addr) netip.Prefix {
	ones, _ := a.Mask.Size()
	return netip.PrefixFrom(netlink.Addr(a.IP), ones)
}
