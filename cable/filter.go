package cable

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"subctl/dataplane"
)

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

// filter adds the tables of a gateway and its chains of iptables to s; see Plan.
func (c Cabling) filter(s dataplane.State, devices []cableDevice, links []Link, listens []Listen) error {
	tables := c.antispoof(s, devices, links, listens).Tables()
	c.addFilter(&tables[0], devices, listens)
	objs := []dataplane.Object{
		acceptChain(dataplane.GatewayOwner, "INPUT"), acceptChain(dataplane.GatewayOwner, "FORWARD"),
	}
	for _, t := range tables {
		objs = append(objs, t)
	}
	if len(c.Local.Global) > 0 {
		objs = append(objs, c.globalnet(devices))
	}
	if err := s.Add(objs...); err != nil {
		return err
	}
	guard(s, tables, devices)
	return nil
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

// fewNets is the maximum number of networks behind a device that get their own rule for
// every network of this cluster.
const fewNets = 4

// fewPeers is the maximum number of peers that get their own rule. A set lookup costs as much
// as about eight comparisons, for every packet of a cable.
const fewPeers = 8

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
