package cable

import (
	"net/netip"
	"slices"
	"strings"

	"subctl/dataplane"
)

// antispoof returns the table that drops forged packets on a gateway:
//
//   - VXLAN packets of cables arrive on the device that leads to the sending gateway, and contain
//     packets of that gateway's cluster only. All peers of a driver share a device, so without
//     this rule one member could send with another member's addresses;
//   - packets that leave through a cable have a source in this cluster.
func (c Cabling) antispoof(s dataplane.State, devices []cableDevice, links []Link, listens []Listen) dataplane.Antispoof {
	a := dataplane.Antispoof{
		Table: dataplane.GatewayOwner.Antispoof, Inner: c.inner(links), Out: deviceNames(outputs(devices)),
		Own: set("", slices.Concat(c.Local.Pods, c.Local.Svcs, addresses(s))).Members,
	}
	for _, l := range listens {
		if l.VXLAN && !slices.Contains(a.Ports, l.Port) {
			a.Ports = append(a.Ports, l.Port)
		}
	}
	for _, d := range devices {
		if d.carrier != "" && !slices.Contains(a.Out, d.carrier) {
			a.Out = append(a.Out, d.carrier)
		}
	}
	return a
}

// inner returns the sources that each peer with a VXLAN cable may use inside VXLAN packets: its
// networks, and its addresses on the devices.
func (c Cabling) inner(links []Link) []dataplane.InnerSource {
	all := make([]dataplane.InnerSource, 0, 3*len(links)) // most clusters have two networks
	for i, l := range links {
		if !l.Outer.IsValid() {
			continue
		}
		all = append(all, dataplane.InnerSource{Outer: l.Outer, Net: netip.PrefixFrom(l.IP, 32)})
		for _, n := range c.Peers[i].Subnets {
			all = append(all, dataplane.InnerSource{Outer: l.Outer, Net: n})
		}
	}
	slices.SortFunc(all, dataplane.InnerSource.Compare)
	widest := all[:0]
	for _, s := range all {
		if n := len(widest); n > 0 && widest[n-1].Outer == s.Outer && widest[n-1].Net.Overlaps(s.Net) {
			continue // sorted, so the wider one came first; the kernel refuses overlaps
		}
		widest = append(widest, s)
	}
	return widest
}

// addresses returns the addresses that a plan gives to devices.
func addresses(s dataplane.State) (out []netip.Prefix) {
	for _, o := range s {
		if a, ok := o.(dataplane.Addr); ok {
			out = append(out, netip.PrefixFrom(a.Prefix.Addr(), 32))
		}
	}
	return out
}

// deviceNames returns the arguments that outputs returns as names in dataplane.Antispoof.
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
//   - nothing is forwarded to addresses on our devices: a cable encrypts whatever is sent to them;
//   - packets of other clusters arrive on our devices;
//   - packets of other clusters do not reach the ports of metrics and probes: the node has an address
//     in the pod network, and some CNIs carry packets to it on devices of their own. On our devices nothing
//     does: the gateway agent may know a cluster before the route agent does.
func (n Intra) antispoof() dataplane.Antispoof {
	a := dataplane.Antispoof{
		Table: dataplane.RouteOwner.Antispoof, Ports: []int{dataplane.IntraPort},
		Transit: []int{dataplane.IntraPort, dataplane.VXLANWireGuardPort, dataplane.VXLANIPsecPort},
		Closed:  dataplane.Range{Min: dataplane.GatewayMetricsPort, Max: dataplane.RouteProbePort},
	}
	if n.VXLANPort != 0 {
		a.Transit = append(a.Transit, n.VXLANPort)
	}
	var ends, remote []netip.Prefix
	for _, ip := range n.Ends {
		ends = append(ends, netip.PrefixFrom(ip, 32))
	}
	a.Ends = set("", ends).Members
	for _, d := range dataplane.DeviceNets {
		a.Unforwarded = append(a.Unforwarded, d.Net)
	}
	for _, r := range n.Remote {
		remote = append(remote, r.Subnets...)
	}
	a.Remote = set("", remote).Members
	for _, o := range dataplane.Owners() {
		a.ClosedOn = append(a.ClosedOn, o.Devices...)
		for _, p := range o.Prefixes {
			a.ClosedOn = append(a.ClosedOn, p+dataplane.DeviceAny)
		}
	}
	if n.OnlyOurDevices {
		a.In, a.Usual = a.ClosedOn, n.usual()
	}
	return a
}

// usual returns the devices on which packets of other clusters usually arrive, as names in
// dataplane.Antispoof.
func (n Intra) usual() []string {
	devices := []cableDevice{{device: dataplane.IntraDevice}}
	for _, r := range n.Remote {
		if n.isGateway() && r.Device != "" {
			devices = append(devices, cableDevice{device: r.Device})
		}
	}
	return slices.Sorted(slices.Values(deviceNames(outputs(devices))))
}

// guard ensures that no device carries packets while its chain is missing, that no chain of a
// device is used without the chain for INPUT, and that chain not without the table against
// forged packets.
func guard(s dataplane.State, a dataplane.Antispoof, input dataplane.Chain, devices []cableDevice) {
	put := func(o dataplane.Key, by dataplane.Key) {
		if s[o] != nil {
			s[o] = dataplane.Guarded(s[o], by)
		}
	}
	put(input.Key(), a.Key())
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
	return k.Kind == dataplane.KindAntispoof || k.Kind == dataplane.KindSet || k == gatewayInput.Key()
}
