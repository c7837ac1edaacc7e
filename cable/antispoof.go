package cable

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"subctl/dataplane"
	"subctl/internal/prefix"
)

// antispoof returns the table that drops forged packets on a gateway:
//
//   - VXLAN packets of cables arrive on the device that leads to the sending gateway, and contain
//     packets of that gateway's cluster only. All peers of a driver share a device, so without
//     this rule one member could send with another member's addresses;
//   - an ICMP error that arrives through a cable is about a packet to the cluster at its other end;
//   - packets that leave through a cable have a source in this cluster, and packets that arrive
//     through a cable have a destination in this cluster: with globalnet, in its global networks;
//   - nothing is forwarded to a cable except packets from the pod, Service and global networks of
//     this cluster, whatever kube-proxy or the CNI would make of it, what came for a node port or
//     another address of a Service of this cluster, answers to connections from the other end, and
//     a peer's echoes back to the peer. Nothing passes from one cable to another.
func (c Cabling) antispoof(
	s dataplane.State,
	devices []cableDevice,
	links []Link,
	listens []Listen,
) Antispoof {
	announced := c.Local.Global
	if len(announced) == 0 {
		announced = slices.Concat(c.Local.Pods, c.Local.Svcs)
	}
	a := Antispoof{
		Table: dataplane.GatewayOwner.Antispoof, Inner: c.inner(links), Apart: deviceNames(outputs(devices)),
		Own:     prefix.Widest(slices.Concat(announced, addresses(s))),
		Global:  prefix.Widest(c.Local.Global),
		Usually: prefix.Widest(c.Local.Pods),
		// another gateway hands over answers from Global
		Local:    prefix.Widest(slices.Concat(c.Local.Pods, c.Local.Svcs, c.Local.Global)),
		Nodes:    []string{dataplane.IntraDevice},
		Clusters: c.clusters(links), Behind: c.behind(links),
	}
	if len(a.Global) > 0 {
		a.Between = []string{dataplane.IntraDevice}
	}
	for _, l := range listens {
		if l.VXLAN && !slices.Contains(a.Ports, l.Port) {
			a.Ports = append(a.Ports, l.Port)
		}
	}
	var plain, vxlans []cableDevice
	for _, d := range devices {
		if d.echo.Own.IsValid() {
			a.Echoes = append(a.Echoes, d.echo)
		} else {
			plain = append(plain, d)
		}
	}
	a.Out = deviceNames(outputs(plain))
	for _, d := range devices {
		if slices.ContainsFunc(links, func(l Link) bool { return l.Device == d.device && l.Outer.IsValid() }) {
			vxlans = append(vxlans, d)
		}
	}
	a.Inside = deviceNames(outputs(vxlans))
	for _, d := range devices {
		if d.carrier != "" && !slices.Contains(a.Apart, d.carrier) {
			a.Out, a.Apart = append(a.Out, d.carrier), append(a.Apart, d.carrier)
		}
	}
	for _, l := range links {
		if l.MAC != "" {
			a.Echoing = append(a.Echoing, l.IP)
		}
	}
	slices.SortFunc(a.Echoing, netip.Addr.Compare)
	a.Echoing = slices.Compact(a.Echoing)
	return a
}

// clusters returns the networks of the clusters behind the cables, and the addresses of their
// gateways.
func (c Cabling) clusters(links []Link) []dataplane.ClusterNet {
	all := make([]dataplane.ClusterNet, 0, 4*len(links)) // most clusters have two networks
	for i, p := range c.Peers {
		for _, n := range p.Subnets {
			all = append(all, dataplane.ClusterNet{Net: n, Cluster: p.Cluster})
		}
		for _, ip := range []netip.Addr{links[i].IP, links[i].Outer} {
			if ip.IsValid() {
				all = append(all, dataplane.ClusterNet{Net: prefix.Host(ip), Cluster: p.Cluster})
			}
		}
	}
	return clusterNets(all, c.Barred)
}

// clusterNets returns networks of clusters, sorted, without networks that are inside another one,
// and those of barred that overlap none of them.
func clusterNets(all []dataplane.ClusterNet, barred []netip.Prefix) []dataplane.ClusterNet {
	out := widestOf(all)
	taken := out
	for _, b := range barred {
		i, _ := slices.BinarySearchFunc(taken, b,
			func(n dataplane.ClusterNet, b netip.Prefix) int { return n.Net.Addr().Compare(b.Addr()) })
		before := i > 0 && taken[i-1].Net.Overlaps(b)
		after := i < len(taken) && taken[i].Net.Overlaps(b)
		if !before && !after {
			out = append(out, dataplane.ClusterNet{Net: b})
		}
	}
	return widestOf(out)
}

// widestOf sorts networks, and removes those that are inside another one.
func widestOf(all []dataplane.ClusterNet) []dataplane.ClusterNet {
	slices.SortStableFunc(all, func(a, b dataplane.ClusterNet) int {
		return cmp.Or(a.Net.Addr().Compare(b.Net.Addr()), cmp.Compare(a.Net.Bits(), b.Net.Bits()))
	})
	widest := all[:0]
	for _, n := range all {
		if k := len(widest); k == 0 || !widest[k-1].Net.Overlaps(n.Net) {
			widest = append(widest, n)
		}
	}
	return widest
}

// inner returns the sources that each peer with a VXLAN cable may use inside VXLAN packets: its
// networks, and its addresses on the devices.
func (c Cabling) inner(links []Link) []InnerSource {
	all := make([]InnerSource, 0, 3*len(links)) // most clusters have two networks
	for i, l := range links {
		if !l.Outer.IsValid() {
			continue
		}
		all = append(all, InnerSource{Outer: l.Outer, Net: prefix.Host(l.IP)})
		if l.MAC != "" { // our own echoes come back
			all = append(all, InnerSource{Outer: l.Outer, Net: prefix.Host(l.From)})
		}
		for _, n := range c.Peers[i].Subnets {
			all = append(all, InnerSource{Outer: l.Outer, Net: n})
		}
	}
	slices.SortFunc(all, InnerSource.Compare)
	widest := all[:0]
	for _, s := range all {
		if n := len(widest); n > 0 && widest[n-1].Outer == s.Outer && widest[n-1].Net.Overlaps(s.Net) {
			continue // sorted, so the wider one came first; the kernel refuses overlaps
		}
		widest = append(widest, s)
	}
	return widest
}

// behind returns the networks of the peers whose cables are no VXLANs, with their addresses on the
// devices. Of a peer with a VXLAN inside another cable, it is the address that sends VXLAN packets.
// The smallest address of its gateways on the devices stands for a cluster.
func (c Cabling) behind(links []Link) []PeerNet {
	var all []dataplane.ClusterNet
	peers := map[string]netip.Addr{}
	for i, l := range links {
		nets := []netip.Prefix{prefix.Host(l.Outer)}
		switch {
		case !l.Outer.IsValid():
			nets = append(slices.Clone(c.Peers[i].Subnets), prefix.Host(l.IP))
		case l.StateDevice == "" || l.StateDevice == l.Device:
			continue
		}
		cluster := c.Peers[i].Cluster
		if first, ok := peers[cluster]; !ok || l.IP.Less(first) {
			peers[cluster] = l.IP
		}
		for _, n := range nets {
			all = append(all, dataplane.ClusterNet{Net: n, Cluster: cluster})
		}
	}
	var out []PeerNet
	for _, n := range widestOf(all) {
		out = append(out, PeerNet{Net: n.Net, Peer: peers[n.Cluster]})
	}
	return out
}

// addresses returns the addresses that a plan gives to devices.
func addresses(s dataplane.State) (out []netip.Prefix) {
	for _, o := range s {
		if a, ok := o.(dataplane.Addr); ok {
			out = append(out, prefix.Host(a.Prefix.Addr()))
		}
	}
	return out
}

// deviceNames returns the arguments that outputs returns as names in Antispoof.
func deviceNames(arguments []string) (out []string) {
	for _, a := range arguments {
		if prefix, ok := strings.CutSuffix(a, "+"); ok {
			a = prefix + dataplane.DeviceAny
		}
		out = append(out, a)
	}
	return out
}

// antispoof returns the table that drops forged packets on every node:
//
//   - VXLAN packets arrive on the device that leads to the sending node;
//   - pods cannot send VXLAN packets to nodes and gateways, whatever their source is: the CNI may
//     translate a source to the node's own address, which the receiver accepts;
//   - nothing is forwarded to addresses on our devices, except echoes: a cable encrypts whatever is
//     sent to them;
//   - packets from other clusters to the pod, Service and global networks of this one arrive on our
//     devices. Others, such as to a node port, never came through a cable: who could send them
//     before two clusters were connected still can;
//   - a worker forwards nothing from one gateway to another, even if kube-proxy chose the
//     destination and translated the source, which hides from the gateway that the packet came
//     through a cable;
//   - a gateway forwards nothing from another gateway of this cluster to a cable that comes from
//     another cluster, for the same reason;
//   - an answer to a ping reaches the node if it has asked for it;
//   - from other clusters, nothing but answers reaches the ports of metrics and probes: the node
//     has an address in the pod network, and some CNIs carry packets to it on devices of their own.
//     On our devices nothing else does at all: the gateway agent may know a cluster before the
//     route agent does.
func (n Intra) antispoof() Antispoof {
	a := Antispoof{
		Table: dataplane.RouteOwner.Antispoof, Ports: []int{dataplane.IntraPort},
		Transit: slices.Concat([]int{dataplane.IntraPort}, n.VXLANPorts),
		Closed:  dataplane.Range{Min: dataplane.GatewayMetricsPort, Max: dataplane.RouteProbePort},
		Usually: prefix.Widest(n.Local.Pods), Protected: n.announced(),
	}
	var ends, remote []netip.Prefix
	a.Clusters = make([]dataplane.ClusterNet, 0, 2*len(n.Remote)) // most clusters have two networks
	for _, ip := range n.Ends {
		ends = append(ends, prefix.Host(ip))
	}
	a.Ends = prefix.Widest(ends)
	for _, d := range dataplane.DeviceNets {
		a.Unforwarded = append(a.Unforwarded, d.Net)
	}
	for _, r := range n.Remote {
		remote = append(remote, r.Subnets...)
		for _, net := range r.Subnets {
			a.Clusters = append(a.Clusters, dataplane.ClusterNet{Net: net, Cluster: r.Cluster})
		}
	}
	a.Remote, a.Clusters = prefix.Widest(remote), clusterNets(a.Clusters, n.Barred)
	switch intra := []string{dataplane.IntraDevice}; {
	case !n.isGateway():
		a.Apart = intra
	case len(n.siblings()) > 0:
		a.Siblings = intra
		a.Cables = dataplane.GatewayOwner.DeviceNames()
	}
	a.Echoes, a.Echoing = n.echoes()
	a.ClosedOn = dataplane.NodeDevices()
	a.Pongs = a.ClosedOn
	if n.OnlyOurDevices {
		a.In = a.ClosedOn
		a.Usual = n.usual()
	}
	return a
}

// usual returns the devices on which packets of other clusters usually arrive, as names in
// Antispoof: on a gateway, the devices of cables first.
func (n Intra) usual() []string {
	var devices []cableDevice
	for _, r := range n.Remote {
		if n.isGateway() && r.Device != "" {
			devices = append(devices, cableDevice{device: r.Device})
		}
	}
	return append(slices.Sorted(slices.Values(deviceNames(outputs(devices)))), dataplane.IntraDevice)
}

// guard ensures that no device carries packets while its chain is missing, that no chain of a
// device is used without the chain for INPUT, and that chain not without the tables against forged
// packets.
func guard(s dataplane.State, tables []dataplane.Ruleset, input dataplane.Chain, devices []cableDevice) {
	put := func(o dataplane.Key, by dataplane.Key) {
		if s[o] != nil {
			s[o] = dataplane.Guarded(s[o], by)
		}
	}
	put(input.Key(), tables[len(tables)-1].Key())
	for _, d := range devices {
		chain := dataplane.Chain{Table: "filter", Name: d.name()}.Key()
		put(chain, input.Key())
		put(dataplane.Key{Kind: dataplane.KindLink, Name: d.device}, chain)
		if d.carrier != "" {
			put(dataplane.Key{Kind: dataplane.KindLink, Name: d.carrier}, chain)
		}
	}
}

// ofAll reports whether an object of the filter serves all cables, so that without it no device
// carries packets. The sets are among them, as the chain for INPUT matches on all of them.
func ofAll(k dataplane.Key) bool {
	return k.Kind == dataplane.KindRuleset || k.Kind == dataplane.KindSet || k == gatewayInput.Key()
}
