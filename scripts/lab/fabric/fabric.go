package fabric

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"subctl/lab/plan"
)

// Ensure makes the router and its link to the root namespace.
func Ensure() error {
	if err := checkHostRoutes(); err != nil {
		return err
	}
	if _, err := ensureNetns(plan.FabricNetns); err != nil {
		return err
	}
	if err := In(plan.FabricNetns, func() error { return errors.Join(up("lo"), forward()) }); err != nil {
		return fmt.Errorf("setting up the fabric: %w", err)
	}
	if err := plug(plan.HostLink, "", plan.HostAddr, plan.FabricUplink); err != nil {
		return fmt.Errorf("linking the machine to the fabric: %w", err)
	}
	if err := In(plan.FabricNetns, func() error { return address(plan.FabricUplink, plan.FabricAddr) }); err != nil {
		return err
	}
	if err := route(plan.FabricCIDR, plan.FabricAddr.Addr()); err != nil {
		return err
	}
	return ensureCutRules()
}

// EnsureCluster makes the switch of a cluster, the namespaces of its control plane and nodes, their
// cables, and the routes to each node's pods.
func EnsureCluster(c plan.Cluster) error {
	if err := In(plan.FabricNetns, func() error { return bridge(c.Bridge(), c.Gateway()) }); err != nil {
		return fmt.Errorf("making the switch of %s: %w", c.Name(), err)
	}
	for _, p := range c.Ports() {
		if err := ensurePort(c, p); err != nil {
			return fmt.Errorf("plugging %s into the fabric: %w", p.Name, err)
		}
	}
	networks, err := Networks()
	if err != nil {
		return err
	}
	for _, n := range c.Members() {
		for _, network := range networks {
			if err := JoinNetwork(n, network); err != nil {
				return fmt.Errorf("connecting %s to network %s: %w", n.Name(), network, err)
			}
		}
	}
	if c.Flannel() != "" {
		return nil // it masquerades by itself
	}
	for _, n := range c.Members() {
		if err := masquerade(n); err != nil {
			return err
		}
	}
	return nil
}

// ensurePort makes a namespace, its cable and its routes.
func ensurePort(c plan.Cluster, p plan.Port) error {
	if _, err := ensureNetns(p.Netns); err != nil {
		return err
	}
	if err := In(p.Netns, ignoreRedirects); err != nil {
		return err
	}
	if err := plug("eth0", p.Netns, p.Addr, p.Link); err != nil {
		return err
	}
	if err := In(plan.FabricNetns, func() error { return join(p.Link, c.Bridge()) }); err != nil {
		return err
	}
	err := In(p.Netns, func() error {
		errs := []error{up("lo"), route(netip.MustParsePrefix("0.0.0.0/0"), c.Gateway().Addr())}
		if p != c.API() {
			errs = append(errs, forward())
		}
		// Pods of other nodes by way of their node, unless flannel takes care of that; the control
		// plane too needs to reach pods (webhooks, aggregated APIs).
		for _, n := range c.Members() {
			if n.Port() != p && (p == c.API() || c.Flannel() == "") {
				errs = append(errs, route(n.Pods(), n.Addr().Addr()))
			}
		}
		// And Services, where webhooks are: kube-proxy runs on nodes only, so they are reached by
		// way of the first one.
		if p == c.API() && c.Nodes > 0 {
			errs = append(errs, route(c.Services(), c.Members()[0].Addr().Addr()))
		}
		return errors.Join(errs...)
	})
	if err != nil {
		return err
	}
	return ensureCuttable(p)
}

// Unplug takes away a node's cable and namespace, as a power cut would: nothing of its network
// state is there afterwards.
func Unplug(p plan.Port) error {
	err := In(plan.FabricNetns, func() error { return deleteLink(p.Link) })
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // no fabric, no cable
	}
	return errors.Join(err, DeleteNetns(p.Netns))
}

// Remove takes everything away: all namespaces of the lab and, with it, its links and routes.
func Remove() error {
	errs := []error{deleteLink(plan.HostLink)}
	names, err := Namespaces()
	errs = append(errs, err)
	for _, name := range names {
		// Links first: a namespace is torn down whenever the kernel gets to it, and its cables
		// would be seen until then.
		errs = append(errs, In(name, deleteLinks), DeleteNetns(name))
	}
	return errors.Join(errs...)
}

// plug makes a cable from a link in a namespace ("" is the root namespace) to a link in the fabric,
// and gives it its address.
func plug(link, ns string, addr netip.Prefix, fabricLink string) error {
	enter := func(f func() error) error {
		if ns == "" {
			return f()
		}
		return In(ns, f)
	}
	missing := false
	if err := enter(func() (err error) { missing, err = noLink(link); return err }); err != nil {
		return err
	}
	if missing {
		peer, err := openNetns(ns)
		if err != nil {
			return fmt.Errorf("opening network namespace %q: %w", ns, err)
		}
		defer peer.Close()
		err = In(plan.FabricNetns, func() error {
			if err := deleteLink(fabricLink); err != nil { // the other half of a cable that lost one end
				return err
			}
			return netlink.LinkAdd(&netlink.Veth{
				LinkAttrs: netlink.LinkAttrs{Name: fabricLink},
				PeerName:  link, PeerNamespace: netlink.NsFd(peer.Fd()),
			})
		})
		if err != nil {
			return fmt.Errorf("making link %s: %w", fabricLink, err)
		}
	}
	if err := In(plan.FabricNetns, func() error { return up(fabricLink) }); err != nil {
		return err
	}
	return enter(func() error { return errors.Join(address(link, addr), up(link)) })
}

func openNetns(name string) (*os.File, error) {
	if name == "" {
		return os.Open("/proc/thread-self/ns/net")
	}
	return os.Open(filepath.Join(netnsDir, name))
}

// forward makes a router of the namespace this thread is in. Return paths are not checked: with
// several gateways they differ.
func forward() error {
	var errs []error
	for key, value := range map[string]string{
		"ip_forward":             "1",
		"conf/all/rp_filter":     "0",
		"conf/default/rp_filter": "0",
	} {
		errs = append(errs, os.WriteFile("/proc/sys/net/ipv4/"+key, []byte(value), 0o644))
	}
	return errors.Join(errs...)
}

// ignoreRedirects is for the namespace this thread is in, before it has links. A node that boots
// has no routes to its pods yet, and sends ICMP redirects for packets to them: the others would
// look for these pods behind the default gateway for minutes.
func ignoreRedirects() error {
	var errs []error
	for _, of := range []string{"all", "default"} {
		errs = append(errs, os.WriteFile("/proc/sys/net/ipv4/conf/"+of+"/accept_redirects", []byte("0"), 0o644))
	}
	return errors.Join(errs...)
}

// masquerade lets a node's pods speak with the fabric beyond their own cluster, as API servers of
// others: out there nobody knows where pods are. Real clusters do so too. What a cable carries does
// not leave the node with a pod's address on it, and what pods send to foreign pods without one is
// not for the fabric's addresses: both stay as they are.
func masquerade(n plan.Node) error {
	return nft(n.Netns(), fmt.Sprintf(`
add table ip %[1]s
add chain ip %[1]s leave { type nat hook postrouting priority srcnat; }
flush chain ip %[1]s leave
add rule ip %[1]s leave oifname "eth0" ip saddr %[2]s ip daddr %[3]s ip daddr != %[4]s masquerade
`, table, n.Pods(), plan.FabricCIDR, n.Addr().Masked()))
}

// checkHostRoutes refuses to start where the lab's addresses are somebody else's.
func checkHostRoutes() error {
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Table: unix.RT_TABLE_UNSPEC},
		netlink.RT_FILTER_TABLE)
	if err != nil {
		return fmt.Errorf("reading the machine's routes: %w", err)
	}
	ours := net.IPNet{IP: plan.FabricCIDR.Addr().AsSlice(), Mask: net.CIDRMask(plan.FabricCIDR.Bits(), 32)}
	for _, r := range routes {
		if r.Dst == nil || r.Dst.IP.IsUnspecified() || !(ours.Contains(r.Dst.IP) || r.Dst.Contains(ours.IP)) {
			continue
		}
		link, err := netlink.LinkByIndex(r.LinkIndex)
		if err != nil || link.Attrs().Name == plan.HostLink {
			continue
		}
		return fmt.Errorf("the lab uses %s, but this machine has a route to %s through %s: take that away first",
			plan.FabricCIDR, strings.TrimSpace(r.Dst.String()), link.Attrs().Name)
	}
	return nil
}
