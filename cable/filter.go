package cable

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"subctl/dataplane"
)

// Names of the gateway's sets and chains.
const (
	setPeers  = "SUBMARINER-GW-PEERS"  // addresses of the remote gateways
	setLocal  = "SUBMARINER-GW-LOCAL"  // this cluster's networks
	setRemote = "SUBMARINER-GW-REMOTE" // the networks behind the cables
)

// gatewayFilter returns the rules of who may pass the gateway: see Plan.
func gatewayFilter(c Cabling, links []Link, listens []Listen) []dataplane.Object {
	var remote, probes []netip.Prefix
	var devices []string
	for i, p := range c.Peers {
		remote = append(remote, p.Subnets...)
		devices = append(devices, links[i].Device)
		probes = append(probes, netip.PrefixFrom(links[i].IP, 8).Masked())
	}
	slices.Sort(devices)
	devices = slices.Compact(devices)
	under := carriers(links, devices)
	local := append(slices.Clone(c.Local.Svcs), c.Local.Pods...)
	input := dataplane.Chain{Table: "filter", Name: "SUBMARINER-GW-INPUT", Hook: "INPUT", Sets: []string{setLocal, setRemote}}
	var objs []dataplane.Object
	for i, l := range listens {
		only, more := onlyFrom(l, fmt.Sprintf("%s-%d", setPeers, i))
		input.Rules, input.Sets = append(input.Rules, only.Rules...), append(input.Sets, only.Sets...)
		objs = append(objs, more...)
	}
	for _, dev := range devices {
		in := "-i " + dev + " "
		for _, p := range set("", probes).Members {
			input.Rules = append(input.Rules, fmt.Sprintf("%s-s %v -p icmp -j ACCEPT", in, p))
		}
		input.Rules = append(input.Rules,
			fmt.Sprintf("%s-p icmp -m icmp --icmp-type 8 -m set --match-set %s src -m set --match-set %s dst -j ACCEPT", in, setRemote, setLocal),
			fmt.Sprintf("%s-m set --match-set %s src -m set --match-set %s dst -j RETURN", in, setRemote, setLocal),
			in+"-j DROP")
	}
	for _, dev := range under {
		input.Rules = append(input.Rules, "-i "+dev+" -j DROP")
	}
	return append(objs, set(setLocal, local), set(setRemote, remote), input, c.forward(devices, under))
}

// carriers are the devices that carry other cables' packets and are no cable
// themselves: but for those, which INPUT accepts, nothing comes in by them.
func carriers(links []Link, devices []string) (under []string) {
	for _, l := range links {
		if l.StateDevice != "" && !slices.Contains(devices, l.StateDevice) && !slices.Contains(under, l.StateDevice) {
			under = append(under, l.StateDevice)
		}
	}
	slices.Sort(under)
	return under
}

// forward says what may pass through the gateway. Every packet between pods and
// other clusters comes through here, so rules begin with what most packets fail,
// devices, and addresses are compared where there are few.
//
// Both ends' SYN pass here: each is clamped to the smaller of the MTUs of the
// device by which it leaves and of the way back.
func (c Cabling) forward(devices, under []string) dataplane.Chain {
	const intra = dataplane.IntraDevice
	f := dataplane.Chain{Table: "filter", Name: "SUBMARINER-GW-FORWARD", Hook: "FORWARD", Sets: []string{setRemote}}
	rule := func(format string, args ...any) { f.Rules = append(f.Rules, fmt.Sprintf(format, args...)) }
	for _, dev := range append([]string{intra}, devices...) {
		rule("%s", clamp(dev))
	}
	for _, cable := range devices {
		rule("-i %s -o %s -j ACCEPT", intra, cable) // from our own nodes; the other side checks the source
	}
	for _, dev := range under {
		rule("-i %s -j DROP", dev)
	}
	in := func(cable string) string { return "-i " + cable + " " }
	if len(devices) == 1 {
		rule("! -i %s -j RETURN", devices[0])
		in = func(string) string { return "" }
	}
	remote := "-m set --match-set " + setRemote + " src "
	sources := c.sources(remote)
	for _, cable := range devices {
		from := in(cable)
		for _, p := range c.Local.Pods {
			for _, s := range sources {
				rule("%s%s-d %v -o %s -j ACCEPT", from, s, p, intra)
			}
		}
		for _, out := range devices {
			rule("%s-o %s -j DROP", from, out) // not even if kube-proxy sends it there
		}
		for _, n := range append(slices.Clone(c.Local.Pods), c.Local.Svcs...) {
			for _, s := range sources {
				rule("%s%s-d %v -j RETURN", from, s, n)
			}
		}
		rule("%s%s-m conntrack --ctstate DNAT -j RETURN", from, remote)
		rule("%s-j DROP", from)
	}
	return f
}

// sources matches what is behind the cables: by a rule for each network if there
// are few, and by their set if not.
func (c Cabling) sources(remote string) (matches []string) {
	var nets []netip.Prefix
	for _, p := range c.Peers {
		nets = append(nets, p.Subnets...)
	}
	nets = set("", nets).Members
	if len(nets) > fewNets {
		return []string{remote}
	}
	for _, n := range nets {
		matches = append(matches, fmt.Sprintf("-s %v ", n))
	}
	return matches
}

// clamp returns a rule for FORWARD that makes TCP fit what leaves by a device.
func clamp(dev string) string {
	return fmt.Sprintf("-o %s -p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu", dev)
}

// set masks, sorts and merges members: a network inside another is left out.
func set(name string, members []netip.Prefix) dataplane.Set {
	ms := slices.Clone(members)
	slices.SortFunc(ms, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	var out []netip.Prefix
	for _, m := range ms {
		if n := len(out); n > 0 && out[n-1].Overlaps(m) {
			continue // sorted, so the wider one came first
		}
		out = append(out, m)
	}
	return dataplane.Set{Name: name, Members: out}
}

// fewNets is up to how many networks behind cables are matched by a rule each, for
// every network of this cluster.
const fewNets = 4

// fewPeers is up to how many peers are matched by a rule each. A look-up in a set
// costs as much as about eight comparisons, for every packet of a cable.
const fewPeers = 8

// onlyFrom returns rules for INPUT that accept a kind of packet from its senders and
// drop it from anybody else, and the set they need if there are many.
func onlyFrom(l Listen, setName string) (c dataplane.Chain, objs []dataplane.Object) {
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
			nets = append(nets, netip.PrefixFrom(p, 32))
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
