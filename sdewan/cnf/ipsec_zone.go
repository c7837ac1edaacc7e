package cnf

import (
	"net/netip"
	"slices"

	"subctl/dataplane"
)

// On OpenWrt, packets enter and leave tunnels by the device that also carries the tunnels, and so
// belong to its zone. Here they have a device of their own, which therefore is in that zone:
// forwardings, rules and redirects of the zone are for them, too, and the redirects that translate
// sources to a virtual address work. Only masquerading is not for them: they would not fit the
// tunnel any more.

// tunnels holds the properties of tunnels that the firewall needs.
type tunnels struct {
	exist    bool
	carriers []string // the devices that carry them; the first that is in a zone counts
	open     []openTunnel
	led      map[netip.Prefix]bool // the networks whose packets are sent into tunnels, without 0.0.0.0/0
}

// openTunnel is a tunnel whose packets are accepted whatever zones say (local_firewall).
type openTunnel struct {
	remote      string
	local, nets []netip.Prefix // at this end, and at the other one; empty for any
}

// carriers returns the devices that may carry tunnels to a gateway, the likeliest first.
func (p *plan) carriers(gateway string) (out []string) {
	if ip, err := parseIP(gateway); err == nil {
		best := -1
		for _, r := range p.world.Routes {
			if r.Dst.Contains(ip) && r.Dst.Bits() > best {
				best = r.Dst.Bits()
				out = []string{r.Device}
			}
		}
	}
	for _, u := range p.world.uplinks() {
		out = append(out, u.Device)
	}
	return append(out, p.world.Default)
}

// joinTunnels adds the device of tunnels to a zone.
func (p *plan) joinTunnels() {
	if !p.tunnels.exist ||
		slices.ContainsFunc(p.zones,
			func(z *zone) bool { return slices.Contains(z.devices, dataplane.CNFTunnelDevice) }) {
		return
	}
	for _, device := range p.tunnels.carriers {
		for _, z := range p.zones {
			if slices.Contains(z.devices, device) {
				z.devices = append(z.devices, dataplane.CNFTunnelDevice)
				return
			}
		}
	}
}

// openTunnels accepts the packets of tunnels that are open.
func (p *plan) openTunnels() {
	in := devices("iifname", []string{dataplane.CNFTunnelDevice})
	out := devices("oifname", []string{dataplane.CNFTunnelDevice})
	for _, t := range p.tunnels.open {
		for _, chain := range []string{"fw_input", "fw_forward"} {
			p.table.add(chain, t.remote, in, nets("saddr", t.nets), nets("daddr", t.local), "accept")
		}
		for _, chain := range []string{"fw_output", "fw_forward"} {
			p.table.add(chain, t.remote, out, nets("saddr", t.local), nets("daddr", t.nets), "accept")
		}
	}
}
