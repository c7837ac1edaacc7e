package cable

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"subctl/dataplane"
	"subctl/internal/prefix"
)

// Antispoof is the input of the tables against forged packets: see Tables. rules_forged.go has the
// rules about forged packets, rules_isolation.go the rules that keep clusters apart.
//
// A rule exists only if the fields that it refers to are not empty. Networks are masked, and no
// network of a field contains another one. Lists that grow with the number of clusters or nodes
// become sets, so the cost of a packet does not grow with them. A device name that ends in
// dataplane.DeviceAny stands for all devices with the prefix.
type Antispoof struct {
	Table string

	// VXLANPorts are the UDP ports on which this node receives VXLAN packets. A VXLAN packet must
	// arrive on the device that leads to its source. See remembered.
	VXLANPorts []int
	// InnerSources are the accepted sources of packets inside VXLAN packets, sorted. If it is
	// empty, any source is accepted. Otherwise the packets inside must be IPv4.
	InnerSources []InnerSource
	// DecapDevices are the devices on which packets arrive that were inside VXLAN packets. Their
	// sources are checked there a second time, packet by packet: see decapsulated. IPv6 packets on
	// these devices are dropped.
	DecapDevices []string
	// TransitPorts are the UDP ports of VXLAN packets that this node forwards. A packet to one of
	// TunnelEndpoints must come from one of TunnelEndpoints, and arrive on the device that leads to
	// its source. So no pod can send VXLAN packets: neither with a forged source, nor with its own,
	// which the CNI may translate to the address of the node.
	TransitPorts    []int
	TunnelEndpoints []netip.Prefix
	// DeviceNetworks are the networks of the addresses on our devices. Nothing is forwarded to them
	// except echoes.
	DeviceNetworks []netip.Prefix

	// RemoteNetworks are the networks of other clusters, sorted. Packets from them to
	// ProtectedNetworks must arrive on RemoteDevices, unless RemoteDevices is empty.
	RemoteNetworks []netip.Prefix
	RemoteDevices  []string
	// CommonDevices are the devices of RemoteDevices on which most such packets arrive. Rules
	// compare them first.
	CommonDevices []string
	// ProtectedNetworks are the networks of this cluster that other clusters reach only through
	// cables. If it is empty, all addresses are protected.
	ProtectedNetworks []netip.Prefix
	// AgentPorts are TCP ports of agents on this node. They accept no connections from
	// RemoteNetworks, from DeviceNetworks, or on ClosedDevices. Answers to connections that the
	// node opened from one of these ports pass.
	AgentPorts    dataplane.Range
	ClosedDevices []string

	// Layer3Devices are the devices of cables without VXLAN, such as WireGuard. Packets leave on
	// them with a source in OwnNetworks, and arrive with a destination in OwnNetworks. The same
	// holds for packets inside the VXLAN packets of VXLANPorts.
	Layer3Devices []string
	// OwnNetworks are the networks that this cluster announces, and the addresses of this node on
	// devices of cables; sorted.
	OwnNetworks []netip.Prefix
	// PeerNetworks are the networks of other clusters behind Layer3Devices. An ICMP error that
	// arrives on one of these devices must be about a packet to the cluster that sends the error.
	PeerNetworks []PeerNet
	// PodNetworks are the networks of this cluster's pods. Rules compare them first, because most
	// packets are from and for pods.
	PodNetworks []netip.Prefix

	// IsolatedDevices are devices between which nothing is forwarded: on a gateway the devices of
	// all cables, on a worker dataplane.IntraDevice.
	IsolatedDevices []string
	// LocalNetworks are the pod, Service and global networks of this cluster. Only packets from
	// them are forwarded to IsolatedDevices; if it is empty, all packets are. kube-proxy would
	// otherwise send packets of strangers to another cluster, and translate their source
	// afterwards.
	//
	// There are two exceptions: replies, and connections whose destination this node has
	// translated, such as connections to a node port. Such a connection must not come from another
	// cluster or arrive on IntraDevices. The rules about sources translate its source.
	LocalNetworks []netip.Prefix
	// IntraDevices are the devices on which other nodes and gateways of this cluster send packets
	// to this node. Packets from RemoteNetworks that arrive on them are not forwarded to
	// CableDevices.
	IntraDevices []string
	CableDevices []string
	// GlobalNetworks are the global networks of this cluster. What arrives for them on
	// IsolatedDevices or IntraDevices is not forwarded: globalnet has not translated it. Replies
	// from IsolatedDevices to IntraDevices are forwarded: another gateway of this cluster has
	// translated the connection.
	GlobalNetworks []netip.Prefix

	// PingDevices are the devices on which nodes and gateways with addresses in DeviceNetworks
	// answer the pings of this node. An answer must arrive on one of these devices, must belong to
	// a ping, and is limited to EchoRate for each sender. If it is empty, all answers pass.
	PingDevices []string
	// Echoes are the devices with echoes. EchoPeers are the addresses on them of the nodes whose
	// echoes this node forwards back.
	Echoes    []Echo
	EchoPeers []netip.Addr

	// ClusterNetworks are the networks and gateway addresses of other clusters, for counters:
	// dropped packets count for one of them. The conntrack entries of a network are deleted when it
	// is added, is removed, or passes to another cluster: see dataplane.Ruleset.Ended.
	ClusterNetworks []dataplane.ClusterNet
}

// InnerSource is a network from which a sender of VXLAN packets may send packets inside them.
type InnerSource struct {
	Outer netip.Addr   // source of the VXLAN packet
	Net   netip.Prefix // masked
}

// Compare orders InnerSources by Outer, then by Net.
func (s InnerSource) Compare(other InnerSource) int {
	if c := s.Outer.Compare(other.Outer); c != 0 {
		return c
	}
	return s.Net.Compare(other.Net)
}

// PeerNet is a network of another cluster. Peer is an address that stands for the cluster: all
// networks of a cluster have the same.
type PeerNet struct {
	Net  netip.Prefix // masked
	Peer netip.Addr
}

// Echo is a device on which nodes send each other echoes: datagrams that the kernel of the other
// node forwards back. Source and destination are the sender's own address on the device, and the
// Ethernet frame is for the other node.
type Echo struct {
	Dev  string
	Port int // UDP port of the destination
	// Own is the node's own address on the device. It is the zero Addr if the device belongs to
	// another owner, whose table decides which echoes are forwarded.
	Own netip.Addr
}

// Returned returns the source that an echo gets when it comes back. The kernel accepts no packet
// from another node that has an address of its own as source.
func (e Echo) Returned() netip.Addr {
	return netip.AddrFrom4([4]byte{e.Own.As4()[0], 255, 255, 254})
}

// Net returns the network of the addresses on the device.
func (e Echo) Net() netip.Prefix { return netip.PrefixFrom(e.Own, 8).Masked() }

// Tables returns the table of family ip and, if there are DecapDevices, the table of family ip6.
// All packets of the node pass the chains with hooks. So these chains have few rules, and the rules
// for most packets come first.
func (a Antispoof) Tables() []dataplane.Ruleset {
	t := dataplane.Ruleset{Family: "ip", Table: a.Table}
	a.ownEchoes(&t)
	a.isolation(&t)
	a.icmpErrors(&t)
	a.vxlanIn(&t)
	a.decapsulated(&t)
	a.deviceNetworks(&t)
	a.forwardedVXLAN(&t)
	a.agentPorts(&t)
	a.echoReplies(&t)
	a.fromRemote(&t)
	a.dropAndCount(&t)
	for name, priority := range map[string]int{
		"prerouting": inPriority, "input": antispoofPriority, "forward": antispoofPriority,
		"output": antispoofPriority, "postrouting": outPriority,
	} {
		if t.Chain(name) != nil {
			t.AddChain(name, "filter", name, priority)
		}
	}
	a.sets(&t)
	t.Ends = dataplane.ClusterConnections{
		Clusters: "clusters", Gateways: "senders", Announced: slices.Concat(a.ProtectedNetworks, a.LocalNetworks),
	}
	if !a.checksInside() || len(a.DecapDevices) == 0 {
		return []dataplane.Ruleset{t}
	}
	return []dataplane.Ruleset{t, a.ipv6(t.Key())}
}

// ipv6 returns the table that drops IPv6 packets on DecapDevices. Cables carry only IPv4, but a
// sender can put any packet into a VXLAN packet.
func (a Antispoof) ipv6(guard dataplane.Key) dataplane.Ruleset {
	t := dataplane.Ruleset{Family: "ip6", Table: a.Table, Guard: guard}
	t.AddChain("decapsulated-ipv6", "filter", "prerouting", decapPriority)
	for _, d := range a.DecapDevices {
		t.Drop("decapsulated-ipv6", dataplane.DropIPv6, fmt.Sprintf("iifname %q", d))
	}
	return t
}

// sets adds the sets. Sets with a mask in their name exist for each mask in use: "sources16" for
// networks of 16 bits. They are hash sets, which are faster than interval sets, both to look up and
// to change.
//
//   - senders: the priority of packets inside VXLAN packets, by the sender of the VXLAN packet; see
//     decapsulated. The priority is the address of the sender.
//   - sources16: pairs of such a priority and a network from which this sender may send.
//   - known16: senders of VXLAN packets with the device on which they arrived and the network of
//     the source inside, for remembered. One lookup here replaces one in "sources16" and one in
//     "known-paths". The set is emptied when a network is removed from "sources16".
//   - known-paths: senders of VXLAN packets with the device on which they arrived, for remembered.
//   - peers: the priority that stands for a cluster, by the networks of PeerNetworks.
//   - peer-networks16: pairs of such a priority and a network of the cluster.
//   - remote or remote16: RemoteNetworks, see remoteSets.
//   - echo-peers: EchoPeers, each address twice, because a rule cannot compare source and
//     destination.
//   - clusters: ClusterNetworks, each with a counter. forged: counters for senders.
//   - echo-rates, echo-rates-inside: the rates of echoes and answers to pings, for each sender.
func (a Antispoof) sets(t *dataplane.Ruleset) {
	const interval = "interval"
	networks := func(name string, nets []netip.Prefix) {
		t.AddSet(dataplane.RuleSet{
			Name: name, Type: "ipv4_addr", Flags: interval, Elements: dataplane.Networks(nets),
		})
	}
	remote, _ := a.remoteSets()
	networks("tunnel-endpoints", a.TunnelEndpoints)
	networks("own", a.OwnNetworks)
	networks("remote", remote)
	for bits, nets := range a.remoteByMask() {
		var elements []string
		for _, n := range nets {
			elements = append(elements, n.Addr().String())
		}
		t.AddSet(dataplane.RuleSet{Name: fmt.Sprint("remote", bits), Type: "ipv4_addr", Elements: elements})
	}
	a.senderSets(t)
	var peers []string
	byMask := map[int][]string{}
	for _, n := range a.PeerNetworks {
		peers = append(peers, fmt.Sprintf("%v : %s", n.Net, class(n.Peer)))
		byMask[n.Net.Bits()] = append(byMask[n.Net.Bits()], class(n.Peer)+" . "+number(n.Net.Addr()))
	}
	t.AddSet(dataplane.RuleSet{Name: "peers", Type: "ipv4_addr : classid", Flags: interval, Elements: peers})
	for bits, elements := range byMask {
		t.AddSet(prioritySet(fmt.Sprint("peer-networks", bits), elements))
	}
	var echo []string
	for _, ip := range a.EchoPeers {
		echo = append(echo, number(ip)+" . "+number(ip))
	}
	t.AddSet(dataplane.RuleSet{
		Name: "echo-peers", Type: "integer . integer", Typeof: sourceNumber + " . " + destinationNumber, Elements: echo,
	})
	clusters := make([]string, len(a.ClusterNetworks))
	for i, n := range a.ClusterNetworks {
		clusters[i] = n.Element()
	}
	t.AddSet(dataplane.RuleSet{
		Name: "clusters", Type: "ipv4_addr", Flags: interval, Counter: true, Elements: clusters,
	})
	for name, s := range map[string]dataplane.RuleSet{
		"known-paths":       {Typeof: "ip saddr . iif", Timeout: remembered},
		"echo-rates":        {Type: "ipv4_addr", Timeout: echoSenders},
		"echo-rates-inside": {Type: "classid", Timeout: echoSenders},
		"forged":            {Type: "classid"},
	} {
		if !t.Mentions("@" + name + " {") {
			continue
		}
		s.Name = name
		s.Flags = "dynamic"
		if s.Timeout > 0 {
			s.Flags = "dynamic,timeout"
		}
		t.AddSet(s)
	}
}

// senderSets adds the sets about senders of VXLAN packets: senders, sources16 and known16.
func (a Antispoof) senderSets(t *dataplane.Ruleset) {
	var senders []string
	sources := map[int][]string{}
	for i, s := range a.InnerSources {
		if i == 0 || a.InnerSources[i-1].Outer != s.Outer {
			senders = append(senders, s.Outer.String()+" : "+class(s.Outer))
		}
		sources[s.Net.Bits()] = append(sources[s.Net.Bits()], class(s.Outer)+" . "+number(s.Net.Addr()))
	}
	t.AddSet(dataplane.RuleSet{Name: "senders", Type: "ipv4_addr : classid", Elements: senders})
	for bits, elements := range sources {
		name := fmt.Sprint("sources", bits)
		t.AddSet(prioritySet(name, elements))
		if bits < 32 {
			t.AddSet(dataplane.RuleSet{
				Name: fmt.Sprint("known", bits), Typeof: "ip saddr . iif . " + sourceNumber,
				Flags: "dynamic,timeout", Timeout: remembered, Remembers: name,
			})
		}
	}
}

// prioritySet returns a set of pairs of a priority and a network.
func prioritySet(name string, elements []string) dataplane.RuleSet {
	return dataplane.RuleSet{
		Name: name, Type: "classid . integer", Typeof: "meta priority . " + sourceNumber, Elements: elements,
	}
}

// checksInside reports whether the rules of decapsulated check the packets inside VXLAN packets.
// They then check echoes, too, and the devices of Echoes accept packets with the node's own address
// as source.
func (a Antispoof) checksInside() bool { return len(a.VXLANPorts) > 0 && len(a.InnerSources) > 0 }

// antispoof returns the input of the tables against forged packets on a gateway. The tables ensure:
//
//   - A VXLAN packet of a cable arrives on the device that leads to its sender, and contains a
//     packet of the sender's cluster. All peers of a driver share a device, so without this rule
//     one member could send with the addresses of another member.
//   - An ICMP error that arrives through a cable is about a packet to the cluster that sends it.
//   - A packet that arrives through a cable has a destination in the networks that this cluster
//     announces: the global networks with globalnet, the pod and Service networks without.
//   - A packet that leaves through a cable has a source in these networks.
//   - Only these packets are forwarded to a cable: packets from the pod, Service and global
//     networks of this cluster, connections to a node port or another address of a Service of this
//     cluster, replies to connections from the cable, and echoes of a peer. Neither kube-proxy nor
//     the CNI can change this. Nothing is forwarded from one cable to another.
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
		Table:           dataplane.GatewayOwner.Antispoof,
		InnerSources:    c.innerSources(links),
		IsolatedDevices: deviceNames(outputs(devices)),
		OwnNetworks:     prefix.Widest(slices.Concat(announced, addresses(s))),
		GlobalNetworks:  prefix.Widest(c.Local.Global),
		PodNetworks:     prefix.Widest(c.Local.Pods),
		// with the global networks: another gateway without cables forwards replies from them to
		// this one
		LocalNetworks:   prefix.Widest(slices.Concat(c.Local.Pods, c.Local.Svcs, c.Local.Global)),
		IntraDevices:    []string{dataplane.IntraDevice},
		ClusterNetworks: c.clusters(links),
		PeerNetworks:    c.peerNetworks(links),
	}
	for _, l := range listens {
		if l.VXLAN && !slices.Contains(a.VXLANPorts, l.Port) {
			a.VXLANPorts = append(a.VXLANPorts, l.Port)
		}
	}
	var layer3, vxlans []cableDevice
	for _, d := range devices {
		if d.echo.Own.IsValid() {
			a.Echoes = append(a.Echoes, d.echo)
		} else {
			layer3 = append(layer3, d)
		}
	}
	a.Layer3Devices = deviceNames(outputs(layer3))
	for _, d := range devices {
		if slices.ContainsFunc(links, func(l Link) bool { return l.Device == d.device && l.Outer.IsValid() }) {
			vxlans = append(vxlans, d)
		}
	}
	a.DecapDevices = deviceNames(outputs(vxlans))
	for _, d := range devices {
		if d.carrier != "" && !slices.Contains(a.IsolatedDevices, d.carrier) {
			a.Layer3Devices = append(a.Layer3Devices, d.carrier)
			a.IsolatedDevices = append(a.IsolatedDevices, d.carrier)
		}
	}
	for _, l := range links {
		if l.MAC != "" {
			a.EchoPeers = append(a.EchoPeers, l.IP)
		}
	}
	slices.SortFunc(a.EchoPeers, netip.Addr.Compare)
	a.EchoPeers = slices.Compact(a.EchoPeers)
	return a
}

// clusters returns the networks of the clusters at the other ends of the cables, and the addresses
// of their gateways.
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
	return clusterNets(all, c.Blackholed)
}

// clusterNets returns networks of clusters, and the networks of barred that overlap none of them.
// The result is sorted, and no network contains another one.
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

// widestOf returns networks sorted, without networks inside another one.
func widestOf(all []dataplane.ClusterNet) []dataplane.ClusterNet {
	return prefix.WidestBy(all, func(n dataplane.ClusterNet) netip.Prefix { return n.Net })
}

// innerSources returns the sources that each peer with a VXLAN cable may use inside VXLAN packets:
// the networks of its cluster, and its addresses on the devices.
func (c Cabling) innerSources(links []Link) []InnerSource {
	all := make([]InnerSource, 0, 3*len(links)) // most clusters have two networks
	for i, l := range links {
		if !l.Outer.IsValid() {
			continue
		}
		all = append(all, InnerSource{Outer: l.Outer, Net: prefix.Host(l.IP)})
		if l.MAC != "" { // this node's own echoes, which the peer sends back
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

// peerNetworks returns the networks of peers whose cables do not use VXLAN, and the addresses of
// these peers on the devices. For a VXLAN inside another cable, it returns only the address that
// sends the VXLAN packets. A cluster is identified by the smallest address of its gateways on the
// devices.
func (c Cabling) peerNetworks(links []Link) []PeerNet {
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

// addresses returns the addresses of devices in a plan.
func addresses(s dataplane.State) (out []netip.Prefix) {
	for _, o := range s {
		if a, ok := o.(dataplane.Addr); ok {
			out = append(out, prefix.Host(a.Prefix.Addr()))
		}
	}
	return out
}

// deviceNames converts device arguments of iptables, as outputs returns them, to names in
// Antispoof.
func deviceNames(arguments []string) (out []string) {
	for _, a := range arguments {
		if prefix, ok := strings.CutSuffix(a, "+"); ok {
			a = prefix + dataplane.DeviceAny
		}
		out = append(out, a)
	}
	return out
}

// antispoof returns the input of the table against forged packets on every node. The table ensures:
//
//   - A VXLAN packet arrives on the device that leads to the node that sent it.
//   - Pods cannot send VXLAN packets to nodes and gateways, with any source. The CNI may translate
//     their source to the address of the node, which the receiver accepts.
//   - Nothing is forwarded to the addresses on our devices, except echoes: a cable would encrypt
//     it.
//   - Packets from other clusters to the pod, Service and global networks of this cluster arrive on
//     our devices. Packets to other addresses, such as to a node port, never come through a cable,
//     and are accepted as before the clusters were connected.
//   - A worker forwards nothing from one gateway to another, and a gateway forwards nothing from
//     another cluster that arrived through another gateway of this cluster to a cable. kube-proxy
//     may choose such a destination and translate the source, and the next gateway cannot see that
//     the packet came through a cable.
//   - An answer to a ping reaches the node only if the node sent the ping.
//   - Other clusters cannot connect to the ports of agents, for metrics and probes. This also holds
//     for packets that the CNI carries on devices of its own to the node's address in the pod
//     network. On our devices nobody can connect to them, because the gateway agent may know a
//     cluster earlier than the route agent.
func (n Intra) antispoof() Antispoof {
	a := Antispoof{
		Table:             dataplane.RouteOwner.Antispoof,
		VXLANPorts:        []int{dataplane.IntraPort},
		TransitPorts:      slices.Concat([]int{dataplane.IntraPort}, n.VXLANPorts),
		AgentPorts:        dataplane.Range{Min: dataplane.GatewayMetricsPort, Max: dataplane.RouteProbePort},
		PodNetworks:       prefix.Widest(n.Local.Pods),
		ProtectedNetworks: n.announced(),
	}
	var endpoints, remote []netip.Prefix
	a.ClusterNetworks = make([]dataplane.ClusterNet, 0, 2*len(n.Remote)) // most clusters have two networks
	for _, ip := range n.Ends {
		endpoints = append(endpoints, prefix.Host(ip))
	}
	a.TunnelEndpoints = prefix.Widest(endpoints)
	for _, d := range dataplane.DeviceNets {
		a.DeviceNetworks = append(a.DeviceNetworks, d.Net)
	}
	for _, r := range n.Remote {
		remote = append(remote, r.Subnets...)
		for _, net := range r.Subnets {
			a.ClusterNetworks = append(a.ClusterNetworks, dataplane.ClusterNet{Net: net, Cluster: r.Cluster})
		}
	}
	a.RemoteNetworks = prefix.Widest(remote)
	a.ClusterNetworks = clusterNets(a.ClusterNetworks, n.Blackholed)
	switch intra := []string{dataplane.IntraDevice}; {
	case !n.isGateway():
		a.IsolatedDevices = intra
	case len(n.siblings()) > 0:
		a.IntraDevices = intra
		a.CableDevices = dataplane.GatewayOwner.DeviceNames()
	}
	a.Echoes, a.EchoPeers = n.echoes()
	a.ClosedDevices = dataplane.NodeDevices()
	a.PingDevices = a.ClosedDevices
	if n.OnlyOurDevices {
		a.RemoteDevices = a.ClosedDevices
		a.CommonDevices = n.commonDevices()
	}
	return a
}

// commonDevices returns the devices on which most packets of other clusters arrive, as names in
// Antispoof: on a gateway the devices of cables, then IntraDevice.
func (n Intra) commonDevices() []string {
	var devices []cableDevice
	for _, r := range n.Remote {
		if n.isGateway() && r.Device != "" {
			devices = append(devices, cableDevice{device: r.Device})
		}
	}
	return append(slices.Sorted(slices.Values(deviceNames(outputs(devices)))), dataplane.IntraDevice)
}

// guard adds dependencies, so that no device carries packets while rules are missing: a device
// needs the chain for INPUT, that chain needs the one for FORWARD, and that one the tables against
// forged packets, which also have the rules of the filter.
func guard(s dataplane.State, tables []dataplane.Ruleset, devices []cableDevice) {
	put := func(o dataplane.Key, by dataplane.Key) {
		if s[o] != nil {
			s[o] = dataplane.Guarded(s[o], by)
		}
	}
	input := acceptChain(dataplane.GatewayOwner, "INPUT").Key()
	forward := acceptChain(dataplane.GatewayOwner, "FORWARD").Key()
	put(forward, tables[len(tables)-1].Key())
	put(input, forward)
	for _, d := range devices {
		put(dataplane.Key{Kind: dataplane.KindLink, Name: d.device}, input)
		if d.carrier != "" {
			put(dataplane.Key{Kind: dataplane.KindLink, Name: d.carrier}, input)
		}
	}
}

// neededByAll reports whether an object of the filter is necessary for all cables, so that no
// device carries packets without it.
func neededByAll(k dataplane.Key) bool {
	return k.Kind == dataplane.KindRuleset || k.Kind == dataplane.KindChain
}
