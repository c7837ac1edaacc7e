package cable

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"subctl/dataplane"
)

// Names of the gateway's sets and chains.
const (
	setPeers = "SUBMARINER-GW-PEERS" // addresses of the remote gateways
	setLocal = "SUBMARINER-GW-LOCAL" // this cluster's networks
)

// behind is what is behind the cables of one device.
type behind struct {
	device string
	nets   []netip.Prefix // the clusters' networks
	probes []netip.Prefix // the networks of the gateways' addresses on the device
}

// name is that of its chain and of the set of its networks; a chain's has 28 bytes at most.
func (b behind) name() string { return "SUBMARINER-GW-" + strings.ReplaceAll(b.device, "-", "") }

// devices returns the devices of all cables, sorted by name.
func (c Cabling) devices(links []Link) []behind {
	byDevice := map[string]*behind{}
	for i, p := range c.Peers {
		b := byDevice[links[i].Device]
		if b == nil {
			b = &behind{device: links[i].Device}
			byDevice[b.device] = b
		}
		b.nets = append(b.nets, p.Subnets...)
		b.probes = append(b.probes, netip.PrefixFrom(links[i].IP, 8).Masked())
	}
	var out []behind
	for _, dev := range slices.Sorted(maps.Keys(byDevice)) {
		out = append(out, *byDevice[dev])
	}
	return out
}

// gatewayFilter returns the rules of who may pass the gateway: see Plan.
func gatewayFilter(c Cabling, links []Link, listens []Listen) []dataplane.Object {
	devices := c.devices(links)
	under := carriers(links, devices)
	local := append(slices.Clone(c.Local.Svcs), c.Local.Pods...)
	input := dataplane.Chain{Table: "filter", Name: "SUBMARINER-GW-INPUT", Hook: "INPUT", Sets: []string{setLocal}}
	var objs []dataplane.Object
	for i, l := range listens {
		only, more := onlyFrom(l, fmt.Sprintf("%s-%d", setPeers, i))
		input.Rules, input.Sets = append(input.Rules, only.Rules...), append(input.Sets, only.Sets...)
		objs = append(objs, more...)
	}
	for _, b := range devices {
		in := "-i " + b.device + " "
		for _, p := range set("", b.probes).Members {
			input.Rules = append(input.Rules, fmt.Sprintf("%s-s %v -p icmp -j ACCEPT", in, p))
		}
		ours := fmt.Sprintf("-m set --match-set %s src -m set --match-set %s dst ", b.name(), setLocal)
		input.Rules = append(input.Rules, in+"-p icmp -m icmp --icmp-type 8 "+ours+"-j ACCEPT", in+ours+"-j RETURN", in+"-j DROP")
		input.Sets = append(input.Sets, b.name())
		objs = append(objs, set(b.name(), b.nets), c.from(b, devices))
	}
	for _, dev := range under {
		input.Rules = append(input.Rules, "-i "+dev+" -j DROP")
	}
	return append(objs, set(setLocal, local), input, forward(devices, under))
}

// carriers are the devices that carry other cables' packets and are no cable
// themselves: but for those, which INPUT accepts, nothing comes in by them.
func carriers(links []Link, devices []behind) (under []string) {
	for _, l := range links {
		isCable := slices.ContainsFunc(devices, func(b behind) bool { return b.device == l.StateDevice })
		if l.StateDevice != "" && !isCable && !slices.Contains(under, l.StateDevice) {
			under = append(under, l.StateDevice)
		}
	}
	slices.Sort(under)
	return under
}

// forward says what may leave by the cables; what may come in, from says. Every packet
// between pods and other clusters, and all else that the node forwards, passes both, and
// a rule costs each of them some 50 ns: so there are few, and the first that most
// packets fail is the first.
//
// Both ends' SYN pass here: each is clamped to the smaller of the MTUs of the device by
// which it leaves and of the way back.
func forward(devices []behind, under []string) dataplane.Chain {
	f := dataplane.Chain{Table: "filter", Name: "SUBMARINER-GW-FORWARD", Hook: "FORWARD"}
	for _, dev := range outputs(devices) {
		f.Rules = append(f.Rules, clamp(dev))
	}
	for _, dev := range outputs(devices) { // from our own nodes; the other side checks the source
		f.Rules = append(f.Rules, fmt.Sprintf("-i %s -o %s -j ACCEPT", dataplane.IntraDevice, dev))
	}
	for _, dev := range under {
		f.Rules = append(f.Rules, "-i "+dev+" -j DROP")
	}
	return f
}

// from says what of that which comes in by a device may pass: only what has a source
// behind a cable of this device, whoever else's packets come by another. One that may
// forge packets on the way of a cable without encryption, or the cluster at its other
// end, can so not pass for a cluster whose cable is encrypted.
//
// That what is for a pod's network leaves by a cable need not be looked for: routes to
// our own networks are the node's.
func (c Cabling) from(b behind, devices []behind) dataplane.Chain {
	f := dataplane.Chain{Table: "filter", Name: b.name(), Hook: "FORWARD", Sets: []string{b.name()}}
	rule := func(format string, args ...any) { f.Rules = append(f.Rules, fmt.Sprintf(format, args...)) }
	rule("! -i %s -j RETURN", b.device)
	rule("%s", clamp(dataplane.IntraDevice))
	match := "-m set --match-set " + b.name() + " src "
	sources := b.sources(match)
	for _, s := range sources {
		for _, p := range c.Local.Pods {
			rule("%s-d %v -o %s -j ACCEPT", s, p, dataplane.IntraDevice)
			rule("%s-d %v -j RETURN", s, p)
		}
	}
	for _, s := range sources {
		for _, n := range c.Local.Svcs {
			rule("%s-d %v -j RETURN", s, n)
		}
	}
	for _, out := range outputs(devices) {
		rule("-o %s -j DROP", out) // not even if kube-proxy sends it there
	}
	rule("%s-m conntrack --ctstate DNAT -j RETURN", match)
	rule("-j DROP")
	return f
}

// outputs are devices as "-o" takes them: those of other VNIs, of which a policy may
// make any number, are one.
func outputs(devices []behind) (out []string) {
	for _, b := range devices {
		name := b.device
		if strings.HasPrefix(name, dataplane.VXLANDevicePrefix) {
			name = dataplane.VXLANDevicePrefix + "+"
		}
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// sources matches the networks: by a rule for each if there are few, the last announced
// first, since a cluster announces those of its Services before those of its pods, and
// from Services nothing comes; and by their set if there are many.
func (b behind) sources(match string) (matches []string) {
	nets := slices.Clone(b.nets)
	if len(set("", nets).Members) > fewNets {
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

// fewNets is up to how many networks behind a device are matched by a rule each, for
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
