package cable

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"subctl/dataplane"
	"subctl/internal/prefix"
)

// Names of the gateway's sets and chains.
const (
	setPeers = "SUBMARINER-GW-PEERS" // prefix: the addresses of remote gateways
	setLocal = "SUBMARINER-GW-LOCAL" // the networks of this cluster
)

// gatewayInput is the gateway's chain for packets to the node itself.
var gatewayInput = dataplane.Chain{Table: "filter", Name: "SUBMARINER-GW-INPUT", Hook: "INPUT"}

// cableDevice is a device for packets from and to other clusters.
type cableDevice struct {
	device string
	// carrier is the device that carries its outer packets, if no cable uses it directly. All
	// other packets that arrive on the carrier are dropped.
	carrier string
	nets    []netip.Prefix // the networks of the clusters behind it
	probes  []netip.Prefix // the networks of the gateways' addresses on it
	echo    Echo           // the zero Echo if its peers forward no echoes back
}

// name returns the name of the device's chain and of the set of its networks. The name of a chain
// has at most 28 bytes.
func (d cableDevice) name() string { return "SUBMARINER-GW-" + strings.ReplaceAll(d.device, "-", "") }

// arrival returns the rule for packets that arrive on the device: the route agent's routes to the
// pods of workers apply.
func (d cableDevice) arrival() dataplane.Arrival {
	return dataplane.Arrival{
		Priority: dataplane.ArrivalPriority, Dev: d.device, Table: dataplane.IntraTable, Specific: true,
	}
}

// arrivals returns the rules for packets that arrive on a device.
func (c Cabling) arrivals(d cableDevice) []dataplane.Object {
	rule := d.arrival()
	if !c.FormerRoutes {
		return []dataplane.Object{rule}
	}
	former := rule
	former.Priority = dataplane.FormerPriority
	former.Table = dataplane.FormerIntraTable
	return []dataplane.Object{rule, former}
}

// devices returns the devices of all cables, sorted by name.
func (c Cabling) devices(links []Link) []cableDevice {
	byDevice := map[string]*cableDevice{}
	for i, p := range c.Peers {
		d := byDevice[links[i].Device]
		if d == nil {
			d = &cableDevice{device: links[i].Device}
			byDevice[d.device] = d
		}
		d.nets = append(d.nets, p.Subnets...)
		d.probes = append(d.probes, netip.PrefixFrom(links[i].IP, 8).Masked())
		if links[i].MAC != "" {
			d.echo = Echo{Dev: d.device, Port: dataplane.EchoPort, Own: links[i].From}
		}
	}
	for _, l := range links {
		if byDevice[l.StateDevice] == nil {
			byDevice[l.Device].carrier = l.StateDevice
		}
	}
	var out []cableDevice
	for _, dev := range slices.Sorted(maps.Keys(byDevice)) {
		out = append(out, *byDevice[dev])
	}
	return out
}

// addFilter adds the filter rules of a gateway to s; see Plan.
func (c Cabling) addFilter(s dataplane.State, devices []cableDevice, links []Link, listens []Listen) error {
	tables := c.antispoof(s, devices, links, listens).Tables()
	local := append(slices.Clone(c.Local.Svcs), c.Local.Pods...)
	input := gatewayInput
	input.Sets = []string{setLocal}
	objs := []dataplane.Object{set(setLocal, local)}
	for _, t := range tables {
		objs = append(objs, t)
	}
	if len(c.Local.Global) > 0 {
		objs = append(objs, c.globalnet(devices))
	}
	for i, l := range listens {
		only, more := acceptOnlyFrom(l, fmt.Sprintf("%s-%d", setPeers, i))
		input.Rules, input.Sets = append(input.Rules, only.Rules...), append(input.Sets, only.Sets...)
		objs = append(objs, more...)
	}
	closed := ""
	for _, d := range devices {
		if d.echo.Own.IsValid() {
			closed = echoClosed(d.echo.Port)
		}
		input.Rules, input.Sets = append(input.Rules, d.inputRules()...), append(input.Sets, d.name())
		objs = append(objs, set(d.name(), d.nets), c.forward(d, outputs(devices)))
	}
	if closed != "" {
		input.Rules = append(input.Rules, closed)
	}
	if err := s.Add(append(objs, input)...); err != nil {
		return err
	}
	guard(s, tables, input, devices)
	return nil
}

// inputRules returns the rules for packets that arrive on the device for the node itself.
func (d cableDevice) inputRules() (rules []string) {
	in := "-i " + d.device + " "
	rules = echoInput(d.echo, d.echo.Own)
	for _, p := range prefix.Widest(d.probes) {
		rules = append(rules, fmt.Sprintf("%s-s %v -p icmp -j ACCEPT", in, p))
	}
	ours := fmt.Sprintf("-m set --match-set %s src -m set --match-set %s dst ", d.name(), setLocal)
	rules = append(rules, in+"-p icmp -m icmp --icmp-type 8 "+ours+"-j ACCEPT", in+ours+"-j RETURN")
	// Answers to the node's own connections whose source was translated to its address among the
	// pods: it has been translated back.
	answers := fmt.Sprintf("-m set --match-set %s src -m conntrack --ctstate SNAT --ctdir REPLY ", d.name())
	rules = append(rules, in+answers+"-j RETURN", in+"-j DROP")
	if d.carrier != "" {
		rules = append(rules, "-i "+d.carrier+" -j DROP")
	}
	return rules
}

// forward returns the chain for packets that the gateway forwards through a device. Outgoing
// packets of our own nodes are accepted; the other end checks their source. Incoming packets
// are accepted only if their source is behind a cable of this device. So an attacker who can
// forge packets on a cable without encryption, or who controls its other end, cannot
// impersonate a cluster whose cable is encrypted.
//
// All packets that the node forwards traverse the chain, and each rule costs about 50 ns per
// packet. So there are few rules, and those for most packets come first. Packets for our pods
// need no check of the output device: they follow the node's own routes.
//
// The SYN packets of both ends traverse the chain. The MSS of each is clamped to the smaller
// MTU of the output device and of the route back.
func (c Cabling) forward(d cableDevice, devices []string) dataplane.Chain {
	const intra = dataplane.IntraDevice
	f := dataplane.Chain{Table: "filter", Name: d.name(), Hook: "FORWARD", Sets: []string{d.name()}}
	rule := func(format string, args ...any) { f.Rules = append(f.Rules, fmt.Sprintf(format, args...)) }
	rule("%s", clampRule(d.device))
	rule("-i %s -o %s -j ACCEPT", intra, d.device)
	if d.carrier != "" {
		rule("-i %s -j DROP", d.carrier)
	}
	rule("! -i %s -j RETURN", d.device)
	rule("%s", clampRule(intra))
	match := "-m set --match-set " + d.name() + " src "
	sources := d.sourceMatches(match)
	for _, s := range sources {
		for _, p := range c.Local.Pods {
			rule("%s-d %v -o %s -j ACCEPT", s, p, intra)
			f.Rules = append(f.Rules, c.rulesToUnknownPods(s, p)...)
			rule("%s-d %v -j RETURN", s, p)
		}
	}
	for _, s := range sources {
		for _, n := range c.Local.Svcs {
			rule("%s-d %v -j RETURN", s, n)
		}
	}
	// the table against forged packets has dropped what is no answer to another gateway
	for _, n := range c.Local.Global {
		rule("%s-d %v -o %s -j ACCEPT", match, n, intra)
	}
	if d.echo.Own.IsValid() {
		rule("%s", echoForward(d.echo))
	}
	for _, out := range devices {
		rule("-o %s -j DROP", out) // even if kube-proxy chose the destination
	}
	rule("%s-m conntrack --ctstate DNAT -j RETURN", match)
	rule("-j DROP")
	return f
}

// rulesToUnknownPods returns the rules for packets to pods of other nodes, where the CNI brings
// them there, if this gateway may not have seen the beginning of their connection: another gateway
// has. The CNI chooses the gateway of one direction, and the other cluster chooses the gateway of
// the other direction. Connection tracking calls such packets INVALID, and kube-proxy's chain
// KUBE-FORWARD drops them. No such packet opens a connection. The pods of this node are left to the
// following chains, with the CNI's network policies: connection tracking has seen all packets of
// their connections. A pod behind a device whose name is not one of podDevices, such as a bridge
// that also leads to other nodes, counts as one of another node.
func (c Cabling) rulesToUnknownPods(source string, pods netip.Prefix) (rules []string) {
	if !c.Carried {
		return nil
	}
	match := fmt.Sprintf("%s-d %v ", source, pods)
	rules = append(rules, match+"-m conntrack ! --ctstate INVALID -j RETURN")
	if c.Here.IsValid() {
		rules = append(rules, fmt.Sprintf("%s-d %v -j RETURN", source, c.Here))
	}
	for _, dev := range podDevices {
		rules = append(rules, fmt.Sprintf("%s-o %s -j RETURN", match, argument(dev)))
	}
	return append(rules, match+"-j ACCEPT")
}

// argument returns a name in rules of nftables as an argument of iptables: see deviceNames.
func argument(dev string) string {
	if prefix, ok := strings.CutSuffix(dev, dataplane.DeviceAny); ok {
		return prefix + "+"
	}
	return dev
}

// echoInput returns the rule for INPUT that accepts the node's own echoes. from is their source:
// that with which they were sent, or another one that the table against forged packets gives them.
func echoInput(e Echo, from netip.Addr) []string {
	if !e.Own.IsValid() {
		return nil
	}
	return []string{
		fmt.Sprintf("-i %s -s %v/32 -d %v/32 -p udp -m udp --dport %d -j ACCEPT", e.Dev, from, e.Own, e.Port),
	}
}

// echoClosed is the rule for INPUT that drops all other datagrams to the port of echoes.
func echoClosed(port int) string { return fmt.Sprintf("-p udp -m udp --dport %d -j DROP", port) }

// echoForward returns the rule for FORWARD that accepts the echoes of other nodes. The table
// against forged packets has dropped all packets to such addresses that are none.
func echoForward(e Echo) string {
	return fmt.Sprintf("-i %[1]s -o %[1]s -d %[2]v -p udp -m udp --dport %[3]d -j ACCEPT", e.Dev, e.Net(), e.Port)
}

// outputs returns the devices as arguments of "-o". Devices with a common prefix, of which
// policies can create many, become one argument.
func outputs(devices []cableDevice) (out []string) {
	for _, d := range devices {
		name := d.device
		for _, prefix := range dataplane.GatewayOwner.Prefixes {
			if strings.HasPrefix(name, prefix) {
				name = prefix + "+"
			}
		}
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// sourceMatches returns matches for the networks behind the device: one per network if there are
// few, otherwise one for their set. The networks announced last come first: these are the pod
// networks, and Service networks are not sources of packets.
func (d cableDevice) sourceMatches(match string) (matches []string) {
	nets := slices.Clone(d.nets)
	if len(prefix.Widest(nets)) > fewNets {
		return []string{match}
	}
	slices.Reverse(nets)
	for _, n := range nets {
		if m := fmt.Sprintf("-s %v ", n.Masked()); !slices.Contains(matches, m) {
			matches = append(matches, m)
		}
	}
	return matches
}

// clampRule returns a rule for FORWARD that clamps the TCP MSS to the MTU of the output device.
func clampRule(dev string) string {
	return fmt.Sprintf("-o %s -p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu", dev)
}

// set returns a set with members sorted, without networks that are inside another one.
func set(name string, members []netip.Prefix) dataplane.Set {
	return dataplane.Set{Name: name, Members: prefix.Widest(members)}
}

// fewNets is the maximum number of networks behind a device that get their own rule for
// every network of this cluster.
const fewNets = 4

// fewPeers is the maximum number of peers that get their own rule. A set lookup costs as much
// as about eight comparisons, for every packet of a cable.
const fewPeers = 8

// acceptOnlyFrom returns rules for INPUT that accept a kind of packet from its senders and drop it
// from all others, and the set for the rules if there are many senders.
func acceptOnlyFrom(l Listen, setName string) (c dataplane.Chain, objs []dataplane.Object) {
	match := "-p " + l.Proto + " "
	if l.Port != 0 {
		match += fmt.Sprintf("-m %s --dport %d ", l.Proto, l.Port)
	}
	from := match
	if l.Device != "" {
		from = "-i " + l.Device + " " + from
	}
	if l.IPsec {
		from += "-m policy --dir in --pol ipsec "
	}
	switch {
	case l.From == nil:
		c.Rules = append(c.Rules, from+"-j ACCEPT")
		if l.Device == "" && !l.IPsec {
			return c, nil
		}
	case len(l.From) > fewPeers:
		var nets []netip.Prefix
		for _, p := range l.From {
			nets = append(nets, prefix.Host(p))
		}
		objs = append(objs, set(setName, nets))
		c.Sets = []string{setName}
		c.Rules = append(c.Rules, from+"-m set --match-set "+setName+" src -j ACCEPT")
	default:
		for _, p := range slices.SortedFunc(slices.Values(l.From), netip.Addr.Compare) {
			c.Rules = append(c.Rules, fmt.Sprintf("-s %v/32 %s-j ACCEPT", p, from))
		}
	}
	c.Rules = append(c.Rules, match+"-j DROP")
	return c, objs
}

// acceptChain returns the chain that accepts what a node forwards between its pods and other
// clusters, if no rule of another program has decided about it: it comes after all of them, so
// network policies that iptables applies still count, and before the policy DROP that Docker, ufw
// and administrators give to FORWARD, or a rule that rejects everything.
//
// Packets arrive on our devices, from sources that the tables against forged packets and, on a
// gateway, the chains of the cables have checked. kube-proxy may choose an address of a node as the
// destination behind a Service.
func (n Intra) acceptChain() dataplane.Chain {
	c := dataplane.Chain{Table: "filter", Name: "SUBMARINER-LAST", Hook: "FORWARD", Last: true}
	devices := []string{dataplane.IntraDevice}
	if n.isGateway() {
		cables := slices.Sorted(slices.Values(outputs(n.cableDevices())))
		for _, dev := range cables {
			c.Rules = append(c.Rules, fmt.Sprintf("-i %s -m conntrack --ctstate DNAT -j ACCEPT", dev))
			c.Rules = append(c.Rules, fmt.Sprintf("-o %s -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT", dev))
		}
		devices = append(devices, cables...)
	}
	for _, dev := range devices {
		for _, pods := range prefix.Widest(n.Local.Pods) {
			c.Rules = append(c.Rules, fmt.Sprintf("-d %v -i %s -j ACCEPT", pods, dev),
				fmt.Sprintf("-s %v -o %s -j ACCEPT", pods, dev))
		}
	}
	return c
}

// cableDevices returns the devices of the cables to the connected clusters, as far as a gateway has
// them.
func (n Intra) cableDevices() (devices []cableDevice) {
	for _, r := range n.Remote {
		if r.Device != "" {
			devices = append(devices, cableDevice{device: r.Device})
		}
	}
	return devices
}
