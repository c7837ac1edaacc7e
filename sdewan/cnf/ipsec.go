package cnf

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"subctl/dataplane"
	"subctl/internal/prefix"
	"subctl/internal/secret"
	"subctl/sdewan/rest"
)

// Packets enter tunnels through a device of their own: routes to the other ends' networks lead
// there, before all other routes, whatever the state of the tunnels is. What no tunnel takes ends
// at the device, and, while there is no device, at routes that drop it: nothing leaves in clear
// beside a tunnel, in any mode. Packets of the daemon itself have a mark, by which they are routed
// as if there were no tunnels, so that a tunnel may lead to the network in which its other end is.
//
// A tunnel to everything (0.0.0.0/0) takes only packets from its local networks: the CNF has to
// reach its own neighbours.

// What upstream's strongSwan uses (ipsec.conf of OpenWrt), except that it notices only after 30
// seconds that the other end is silent. An end whose strongSwan was killed answers no packet of the
// old keys, so that the tunnel is away until this end has given up: after dpdDelay, and the tries
// of dataplane/kernel/strongswan (conf.go). An end that is told to end tells the other one (package
// agent).
const (
	ikeLifetime = 3 * time.Hour
	espLifetime = time.Hour
	dpdDelay    = 10 * time.Second
)

// tunnelMTU is the MTU of the device of tunnels: 1500 bytes, less at most 37 bytes of ESP, 8 of UDP
// and 20 of IPv4, and less a reserve of 35 for PPPoE and the like on the way.
const tunnelMTU = 1400

// ipsec plans the connections of IPsec, and what leads packets into them.
func (p *plan) ipsec() {
	if !p.runs("ipsec") {
		return
	}
	p.tunnels.led = map[netip.Prefix]bool{}
	if len(p.config.Remotes) > 0 {
		p.remotes()
	}
	p.left()
}

// remotes plans the connections.
func (p *plan) remotes() {
	runs := p.world.IPsec.Name != ""
	p.tunnels.exist = runs
	daemon := dataplane.IKEDaemon{
		Port:    dataplane.IPsecPort,
		IKEPort: dataplane.IKEPort,
		Device:  dataplane.CNFTunnelDevice,
		Mark:    dataplane.TunnelMark,
	}
	device := dataplane.IPsecInterface{
		Name: dataplane.CNFTunnelDevice,
		MTU:  tunnelMTU,
		Conf: dataplane.Conf{RPFilter: 2, Forwarding: 1},
	}
	several := severalKeys(p.config.Remotes)
	same := map[string]string{}
	for i := range p.config.Remotes {
		r := &p.config.Remotes[i]
		if runs {
			p.putFor(r, daemon)
			p.putFor(r, device)
		} else {
			p.problem(rest.Remotes, r.Name, "the pod has no %s: what is for the networks of the tunnel is dropped",
				cmp.Or(p.world.IPsec.Missing, "IPsec"))
		}
		o, wrong, err := p.remote(r)
		if err == nil && several && len(o.PSK) > 0 && o.Anybody() {
			err = errors.New(
				"without remote_identifier, whoever has this pre-shared key also authenticates as the peers of other connections: set remote_identifier, or use certificates")
		}
		if err != nil {
			p.problem(rest.Remotes, r.Name, "%v", err)
		} else if runs {
			p.add(rest.Remotes, r.Name, o)
		}
		for _, c := range o.Children {
			if c.Mode == dataplane.TunnelMode {
				p.lead(r, c, o.Pools, runs)
				p.alike(r, c, o.Pools, same)
			}
		}
		for _, c := range wrong {
			p.lead(r, c, o.Pools, false)
		}
		p.tunnels.carriers = append(p.tunnels.carriers, p.carriers(o.Gateway)...)
	}
}

// alike reports a child with the networks of one before it: only one of the two takes packets, and
// which is left to chance. before has what the children before it are called, by their networks.
func (p *plan) alike(r *rest.Remote, c dataplane.IKEChild, pools []dataplane.Pool, before map[string]string) {
	nets := networks(r, c, pools)
	if len(nets) == 0 {
		return
	}
	slices.SortFunc(nets, netip.Prefix.Compare)
	key := fmt.Sprint(c.LocalTS, nets)
	if first, is := before[key]; is {
		p.problem(rest.Remotes, r.Name,
			"connection %s: %s has the same networks at both ends, and only one of the two takes packets: "+
				"delete one, or change its networks", c.Name, first)
		return
	}
	before[key] = fmt.Sprintf("connection %s of %s", c.Name, r.Name)
}

// left drops packets for the networks of connections that have just left, except where the network
// of another connection contains the network.
func (p *plan) left() {
	report := p.report
	led := p.tunnels.led
	for i := range p.world.Left {
		r := &p.world.Left[i]
		o, wrong, _ := p.remote(r) // an error is that it has no key any more
		for _, c := range slices.Concat(o.Children, wrong) {
			if c.Mode != dataplane.TunnelMode {
				continue
			}
			nets := slices.DeleteFunc(networks(r, c, o.Pools), func(n netip.Prefix) bool { return contained(n, led) })
			p.toTunnel(r, c, nets, false)
		}
	}
	p.report = report // what was wrong with them is of no interest now
}

// contained reports whether a set has a network, or a larger one that contains it.
func contained(n netip.Prefix, in map[netip.Prefix]bool) bool {
	for bits := n.Bits(); bits >= 0; bits-- {
		if larger, _ := n.Addr().Prefix(bits); in[larger] {
			return true
		}
	}
	return false
}

// severalKeys reports whether Remotes have different pre-shared keys.
func severalKeys(remotes []rest.Remote) bool {
	keys := map[string]bool{}
	for i := range remotes {
		if r := &remotes[i]; r.Auth == "psk" {
			if key, err := presharedKey(r.PreSharedKey); err == nil {
				keys[string(key)] = true
			}
		}
	}
	return len(keys) > 1
}

// remote returns the connection of a Remote. With an error it has the children that could be
// planned nevertheless. Those that could not be, as far as they are known, are in wrong: packets
// for them must not leave in clear.
func (p *plan) remote(r *rest.Remote) (o dataplane.IKERemote, wrong []dataplane.IKEChild, err error) {
	o = dataplane.IKERemote{
		Name:        r.Name,
		Gateway:     r.Gateway,
		LocalID:     r.LocalID,
		RemoteID:    r.RemoteID,
		IKELifetime: ikeLifetime,
		ESPLifetime: espLifetime,
		DPDDelay:    dpdDelay,
	}
	if r.Waits() {
		o.Gateway = ""
	}
	o.RemoteID = cmp.Or(o.RemoteID, o.Gateway)
	var errs []error
	note := func(err error) { errs = append(errs, err) }
	o.IKE = p.proposals(r.Proposals, true, note)
	if r.ForceProposal != "1" || o.IKE == nil {
		o.IKE = append(o.IKE, "default")
	}
	switch r.Auth {
	case "psk":
		key, err := presharedKey(r.PreSharedKey)
		note(err)
		o.PSK = key
	case "pubkey":
		id, err := r.Identity()
		note(err)
		for _, c := range id.Certificates {
			o.Certificates = append(o.Certificates, string(c))
		}
		for _, c := range id.Authorities {
			o.Authorities = append(o.Authorities, string(c))
		}
		for _, k := range id.Keys {
			o.Keys = append(o.Keys, secret.Bytes(k))
		}
		for _, doubt := range r.Doubts(p.world.Now) { // the tunnel is tried all the same
			p.problem(rest.Remotes, r.Name, "%s", doubt)
		}
	default:
		note(fmt.Errorf("authentication_method %q is neither psk nor pubkey", r.Auth))
	}
	for i := range r.Connections {
		c, err := p.child(r, &r.Connections[i], &o, note)
		if err != nil {
			p.problem(rest.Remotes, r.Name, "connection %s: %v", r.Connections[i].Name, err)
			if c.Mode == dataplane.TunnelMode &&
				(len(c.RemoteTS) > 0 || len(items(r.Connections[i].RemoteSubnet)) == 0) {
				wrong = append(wrong, c)
			}
			continue
		}
		o.Children = append(o.Children, c)
	}
	if len(o.Children) == 0 {
		note(errors.New("it has no connection that can be used"))
	}
	return o, wrong, errors.Join(errs...)
}

// child returns a connection of a Remote. Virtual addresses and pools belong to the whole Remote.
// With an error the child has the networks that could be read.
func (p *plan) child(
	r *rest.Remote,
	c *rest.Connection,
	o *dataplane.IKERemote,
	note func(error),
) (child dataplane.IKEChild, err error) {
	child = dataplane.IKEChild{Name: c.Name, Mode: c.Type, Start: c.Mode}
	var errLocal, errRemote error
	child.LocalTS, errLocal = selectors(cmp.Or(c.LocalNAT, c.LocalSubnet))
	child.RemoteTS, errRemote = selectors(c.RemoteSubnet)
	switch {
	case errLocal != nil:
		return child, fmt.Errorf("local_subnet: %w", errLocal)
	case errRemote != nil:
		return child, fmt.Errorf("remote_subnet: %w", errRemote)
	case c.Type != dataplane.TunnelMode && c.Type != dataplane.TransportMode:
		return child, fmt.Errorf("conn_type %q is neither tunnel nor transport", c.Type)
	case c.Type == dataplane.TransportMode && p.world.IPsec.Name != dataplane.EngineKernel:
		return child, errors.New("transport needs a kernel with ESP: use conn_type tunnel")
	}
	switch c.Mode {
	case dataplane.StartNow, dataplane.StartNever, dataplane.StartTraffic:
	default:
		return child, fmt.Errorf("mode %q is not one of start, add, route", c.Mode)
	}
	if o.Gateway == "" {
		child.Start = dataplane.StartNever // there is nobody to begin with
	}
	for _, s := range items(c.LocalSourceIP) {
		if strings.HasPrefix(s, "%config") {
			s = "0.0.0.0"
		} else if ip, err := parseIP(s); err != nil || ip.IsUnspecified() {
			return child, fmt.Errorf("local_sourceip: %q is neither %%config nor an IPv4 address", s)
		}
		if !slices.Contains(o.VIPs, s) {
			o.VIPs = append(o.VIPs, s)
		}
	}
	for _, s := range items(c.RemoteSourceIP) {
		if strings.HasPrefix(s, "%config") {
			continue
		}
		pool, err := rest.ParsePool(s)
		if err != nil || !pool.First.Is4() {
			return child, fmt.Errorf(
				"remote_sourceip: %q is neither an IPv4 address, nor a range such as 192.0.2.30-192.0.2.45", s)
		}
		if !slices.Contains(o.Pools, dataplane.Pool(pool)) {
			o.Pools = append(o.Pools, dataplane.Pool(pool))
		}
	}
	child.ESP = append(p.proposals(c.Proposals, false, note), "default")
	p.unused(r, c)
	return child, nil
}

// unused reports settings of OpenWrt that a CNF without scripts and devices for each tunnel does
// not have.
func (p *plan) unused(r *rest.Remote, c *rest.Connection) {
	if r.Type == "VTI-based" && c == &r.Connections[0] {
		p.remark(rest.Remotes, r.Name,
			"type VTI-based has no effect: addresses select what passes through tunnels, which all have one device")
	}
	for _, f := range []struct{ name, value string }{
		{"local_updown", c.LocalUpdown}, {"remote_updown", c.RemoteUpdown}, {"mark", c.Mark}, {"if_id", c.IfID},
	} {
		if f.value != "" {
			p.remark(rest.Remotes, r.Name,
				"connection %s: %s has no effect: this CNF runs no scripts, and all tunnels have one device", c.Name,
				f.name)
		}
	}
}

// networks returns the networks whose packets are sent into a child.
func networks(r *rest.Remote, c dataplane.IKEChild, pools []dataplane.Pool) []netip.Prefix {
	if len(c.RemoteTS) > 0 {
		return slices.Clone(c.RemoteTS)
	}
	var nets []netip.Prefix // the virtual addresses of the other ends, or their own
	for _, pool := range pools {
		nets = append(nets, prefixes(pool)...)
	}
	if ip, err := parseIP(r.Gateway); err == nil && len(nets) == 0 {
		nets = append(nets, prefix.Host(ip))
	}
	return nets
}

// lead leads packets into a child, and drops them while there is no tunnel.
func (p *plan) lead(r *rest.Remote, c dataplane.IKEChild, pools []dataplane.Pool, runs bool) {
	nets := networks(r, c, pools)
	if len(nets) == 0 {
		p.problem(rest.Remotes, r.Name,
			"connection %s: no packets are sent into the tunnel: remote_subnet, remote_sourceip or the address of the gateway is needed",
			c.Name)
	}
	if slices.ContainsFunc(r.Connections,
		func(conn rest.Connection) bool { return conn.Name == c.Name && conn.LocalFirewall == "yes" }) {
		p.tunnels.open = append(p.tunnels.open, openTunnel{r.Name, c.LocalTS, nets})
	}
	for _, n := range nets {
		if n.Bits() > 0 {
			p.tunnels.led[n] = true
		}
	}
	p.toTunnel(r, c, nets, runs)
}

// toTunnel routes packets for networks to the device of tunnels, if it runs, and drops them
// otherwise.
func (p *plan) toTunnel(r *rest.Remote, c dataplane.IKEChild, nets []netip.Prefix, runs bool) {
	for _, n := range nets {
		table := dataplane.TunnelTable
		rules := []dataplane.PolicyRule{
			{Priority: dataplane.TunnelPriority, Not: true, Mark: dataplane.TunnelMark, Mask: dataplane.TunnelMark},
		}
		if n.Bits() == 0 {
			if len(c.LocalTS) == 0 ||
				slices.ContainsFunc(c.LocalTS, func(l netip.Prefix) bool { return l.Bits() == 0 }) {
				p.problem(rest.Remotes, r.Name,
					"connection %s: remote_subnet %v needs a local_subnet, the networks whose packets the tunnel takes",
					c.Name, n)
				continue
			}
			table = dataplane.TunnelAllTable
			rules = nil
			for _, l := range c.LocalTS {
				rules = append(rules, dataplane.PolicyRule{Priority: dataplane.TunnelAllPriority, Src: l})
			}
		}
		for _, rule := range rules {
			rule.Table = table
			p.putFor(r, dataplane.NewRule(rule))
		}
		if runs {
			p.putFor(r, dataplane.Multipath{
				Table: table,
				Dst:   n,
				Hops:  []dataplane.Hop{{Dev: dataplane.CNFTunnelDevice, Weight: 1}},
			})
		}
		p.putFor(r, dataplane.Blackhole{Table: table, Dst: n}) // the kernel prefers the other route while there is the device
	}
}
