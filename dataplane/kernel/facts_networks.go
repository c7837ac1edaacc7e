//go:build linux

package kernel

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"subctl/dataplane"
	"subctl/dataplane/kernel/netlink"

	vnl "github.com/vishvananda/netlink"
)

// resolvConf lists the DNS servers. Pods of agents have the node's own, as their DNS policy
// is "Default". The kubelet writes the file when the pod starts.
const resolvConf = "/etc/resolv.conf"

// networks returns the networks of addresses, and of routes of devices without a router.
func networks(addrs []dataplane.HostAddr, routes []vnl.Route, links map[int]vnl.Link) []dataplane.HostNetwork {
	var out []dataplane.HostNetwork
	for _, a := range addrs {
		out = append(out, dataplane.HostNetwork{Dev: a.Dev, Prefix: a.Prefix.Masked()})
	}
	for _, r := range routes {
		l := links[r.LinkIndex]
		if l == nil || isDefault(r) || len(r.MultiPath) > 0 || len(r.Gw) > 0 || r.Via != nil {
			continue
		}
		if p := destination(r.Dst); p.IsValid() {
			out = append(out, dataplane.HostNetwork{Dev: l.Attrs().Name, Prefix: p})
		}
	}
	slices.SortFunc(out, func(a, b dataplane.HostNetwork) int {
		return cmp.Or(cmp.Compare(a.Dev, b.Dev), a.Prefix.Compare(b.Prefix))
	})
	return slices.Compact(out)
}

// destination returns the destination of a route; the zero Prefix if it is not IPv4.
func destination(n *net.IPNet) netip.Prefix {
	ip := netlink.Addr(n.IP)
	if !ip.Is4() {
		return netip.Prefix{}
	}
	ones, _ := n.Mask.Size()
	return netip.PrefixFrom(ip, ones).Masked()
}

// routers returns the next hops of the default routes.
func routers(routes []vnl.Route) []netip.Addr {
	var out []netip.Addr
	for _, r := range routes {
		if !isDefault(r) {
			continue
		}
		hops := []net.IP{r.Gw}
		for _, hop := range r.MultiPath {
			hops = append(hops, hop.Gw)
		}
		for _, ip := range hops {
			if ip := netlink.Addr(ip); ip.Is4() {
				out = append(out, ip)
			}
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// readResolvers returns the IPv4 addresses of the DNS servers in a file like
// /etc/resolv.conf, except loopback addresses; none if there is no such file.
func readResolvers(path string) ([]netip.Addr, error) {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the node's DNS servers: %w", err)
	}
	var out []netip.Addr
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		words := strings.Fields(lines.Text())
		if len(words) < 2 || words[0] != "nameserver" {
			continue
		}
		if ip, err := netip.ParseAddr(words[1]); err == nil && ip.Unmap().Is4() && !ip.IsLoopback() {
			out = append(out, ip.Unmap())
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out), nil
}
