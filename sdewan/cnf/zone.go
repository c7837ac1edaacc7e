package cnf

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"subctl/sdewan/rest"
)

// This file plans zones and forwardings, as firewall3 of OpenWrt does with the settings of ICN
// SD-EWAN's image, which accepts by default. The order is its own: for each zone first the rules,
// in their order, then the forwardings, then what redirects have translated, then the policy of the
// zone.
//
// It differs where the image's default would make forwardings useless: a zone forwards to another
// zone only what a forwarding or a rule allows. To networks in no zone, it forwards as its own
// policy for forwarding says; unset, that accepts.

// zone is a zone of the REST API.
type zone struct {
	rest.Zone
	id         string // in names of chains
	devices    []string
	subnets    []netip.Prefix
	family     string // a condition
	policies   map[string]string
	translates bool // a redirect translates what comes from it
}

// arrives and leaves return the condition that a packet comes from the zone, or is for it.
func (z *zone) arrives() string { return z.side("iifname", "saddr") }

func (z *zone) leaves() string { return z.side("oifname", "daddr") }

func (z *zone) side(device, address string) string {
	words := []string{z.family, devices(device, z.devices), nets(address, z.subnets)}
	return strings.Join(strings.Fields(strings.Join(words, " ")), " ")
}

// empty reports whether no packet belongs to the zone.
func (z *zone) empty() bool { return len(z.devices) == 0 && len(z.subnets) == 0 }

func (z *zone) chain(part string) string { return z.id + "_" + part }

// anyZone is the name that stands for all zones, and for what is in none.
const anyZone = "*"

// The verdicts of policies and targets.
var verdicts = map[string]string{"ACCEPT": "accept", "REJECT": "goto fw_reject", "DROP": "drop"}

// firewall plans the modules firewall and networkfirewall.
func (p *plan) firewall() {
	p.zones = nil
	if p.config.Awaiting {
		p.table.add("fw_forward", "", "drop")
	}
	if p.runs("firewall") {
		p.readZones()
	}
	if len(p.zones) > 0 || p.runs("firewall") && len(p.config.Firewall) > 0 || len(p.config.Network) > 0 {
		p.opening()
	}
	if p.runs("firewall") {
		p.rules()
		p.forwardings()
		p.redirects()
		for _, z := range p.zones {
			p.ending(z)
		}
		for _, z := range p.zones {
			p.dispatch(z)
		}
	}
	p.networkRules()
}

// opening plans what comes first.
func (p *plan) opening() {
	for _, c := range []struct{ chain, loopback string }{
		{"fw_input", `iifname "lo" accept`},
		{"fw_forward", ""},
		{"fw_output", `oifname "lo" accept`},
	} {
		if c.loopback != "" {
			p.table.add(c.chain, "", c.loopback)
		}
		p.table.add(c.chain, "", "ct state established,related accept")
	}
	p.openTunnels()
	p.table.add("fw_reject", "", "meta l4proto tcp reject with tcp reset")
	p.table.add("fw_reject", "", "reject with icmpx port-unreachable")
}

// readZones reads the zones.
func (p *plan) readZones() {
	for _, r := range p.config.Zones {
		z := &zone{Zone: r, id: ident("zone", r.Name), policies: map[string]string{}}
		var errs []error
		for _, name := range r.Network {
			f, ok := p.world.network(name)
			switch {
			case !ok && p.world.hasDevice(name):
				errs = append(errs, fmt.Errorf("%q is no network of the CNF, but another device, such as that of the "+
					"cluster's network, which is in no zone", name))
				continue
			case !ok:
				errs = append(errs, fmt.Errorf("network %q does not exist", name))
				continue
			}
			if slices.Contains(z.devices, f.Device) {
				continue
			}
			z.devices = append(z.devices, f.Device)
			if older := slices.IndexFunc(p.zones, func(o *zone) bool {
				return slices.Contains(o.devices, f.Device)
			}); older >= 0 {
				errs = append(
					errs,
					fmt.Errorf("network %q is in the older zone %q, too, whose rules come first", name,
						p.zones[older].Name),
				)
			}
		}
		for _, text := range r.Subnet {
			n, err := parseNet(text)
			if errs = append(errs, err); err == nil {
				z.subnets = append(z.subnets, n)
			}
		}
		var c conditions
		c.family(r.Family)
		errs = append(errs, c.errs...)
		z.family = strings.Join(c.words, " ")
		if neverMatches(z.family + " " + nets("saddr", z.subnets)) {
			errs = append(errs, errNeverMatches)
		}
		for _, f := range []struct{ name, policy string }{
			{"input", r.Input},
			{"forward", r.Forward},
			{"output", r.Output},
		} {
			policy := cmp.Or(f.policy, "ACCEPT")
			if verdicts[policy] == "" {
				errs = append(errs, fmt.Errorf("%s: %q is none of ACCEPT, REJECT and DROP", f.name, policy))
				policy = "REJECT" // nothing is opened by mistake
			}
			z.policies[f.name] = policy
		}
		if r.ExtraSrc != "" || r.ExtraDest != "" {
			errs = append(errs,
				errors.New("extra_src and extra_dest are options of iptables, and have no effect: use subnet"))
		}
		if err := errors.Join(errs...); err != nil {
			p.problem(rest.Zones, r.Name, "%v", err)
		}
		p.zones = append(p.zones, z)
	}
	p.joinTunnels()
}

// zone returns the zone of a name, or nil.
func (p *plan) zone(name string) *zone {
	for _, z := range p.zones {
		if z.Name == name {
			return z
		}
	}
	return nil
}

// refer returns the zone that a field names, and whether the field is "*".
func (p *plan) refer(field, name string) (z *zone, all bool, err error) {
	if name == "" || name == anyZone {
		return nil, name == anyZone, nil
	}
	if z = p.zone(name); z == nil {
		return nil, false, fmt.Errorf("%s: zone %q does not exist", field, name)
	}
	return z, false, nil
}

// forwardings plans what each zone forwards to other zones.
func (p *plan) forwardings() {
	for _, f := range p.config.Forwardings {
		src, _, err1 := p.refer("src", f.Src)
		dest, _, err2 := p.refer("dest", f.Dest)
		var c conditions
		c.family(f.Family)
		family, err3 := c.text()
		if f.Dest == "" {
			err2 = errors.New(`dest is missing: name a zone, or "*"`)
		}
		if err := errors.Join(err1, err2, err3); err != nil {
			p.problem(rest.Forwardings, f.Name, "%v", err)
			continue
		}
		chain := "fw_forward"
		words := []string{family}
		if src != nil {
			chain = src.chain("forward")
			words = append(words, src.arrives())
		}
		if dest != nil {
			words = append(words, dest.leaves())
		}
		if neverMatches(strings.Join(words, " ")) {
			p.problem(rest.Forwardings, f.Name, "%v", errNeverMatches)
			continue
		}
		p.accept(chain, f.Name, family, dest)
	}
}

// accept adds to a chain that what goes to a zone, or everything, is accepted. A zone that
// masquerades gets no packets that connection tracking finds invalid: they would keep their
// addresses.
func (p *plan) accept(chain, note, condition string, dest *zone) {
	switch {
	case dest == nil:
		p.table.add(chain, note, condition, "accept")
	case dest.empty():
	default:
		if dest.Masq == "1" && dest.MasqAllowInvalid != "1" {
			p.table.add(chain, note, condition, dest.leaves(), "ct state invalid drop")
		}
		p.table.add(chain, note, condition, dest.leaves(), "accept")
	}
}

// ending plans what comes last in the chains of a zone: what was translated, and the policies.
func (p *plan) ending(z *zone) {
	input := z.chain("input")
	forward := z.chain("forward")
	output := z.chain("output")
	if z.translates || p.publishes() {
		p.table.add(input, z.Name, "ct status dnat accept")
		p.table.add(forward, z.Name, "ct status dnat accept")
	}
	p.table.add(input, z.Name, verdicts[z.policies["input"]])
	p.table.add(output, z.Name, verdicts[z.policies["output"]])
	if z.policies["forward"] == "ACCEPT" {
		p.accept(forward, z.Name, "", z)
	}
	for _, other := range p.zones {
		if other != z && !other.empty() {
			verdict := verdicts["REJECT"]
			if z.policies["forward"] == "DROP" {
				verdict = verdicts["DROP"]
			}
			p.table.add(forward, z.Name, other.leaves(), verdict)
		}
	}
	if z.policies["forward"] != "ACCEPT" {
		p.table.add(forward, z.Name, verdicts[z.policies["forward"]])
	}
}

// dispatch plans which packets get to the chains of a zone, its masquerading and the size of its
// segments.
func (p *plan) dispatch(z *zone) {
	if z.empty() {
		p.problem(rest.Zones, z.Name, "it has neither a network nor a subnet, and so no effect")
		return
	}
	p.table.add("fw_input", z.Name, z.arrives(), "jump", z.chain("input"))
	p.table.add("fw_forward", z.Name, z.arrives(), "jump", z.chain("forward"))
	p.table.add("fw_output", z.Name, z.leaves(), "jump", z.chain("output"))
	p.masquerade(z)
	if z.MTUFix == "1" {
		for _, side := range []string{z.arrives(), z.leaves()} {
			p.table.add("mss_forward", z.Name, side, "tcp flags & (syn | rst) == syn tcp option maxseg size set rt mtu")
		}
	}
}
