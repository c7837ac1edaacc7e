package cnf

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"subctl/sdewan/rest"
)

// This file translates addresses, of IPv4. The order in both chains: services, the objects of the
// module nat with an index, redirects and masquerading of zones, the other objects of the module
// nat. The first that matches decides, for the whole connection.

// redirects plans the redirects of zones.
func (p *plan) redirects() {
	for _, r := range p.config.Redirects {
		var err error
		switch r.Target {
		case "", "DNAT":
			err = p.dnat(r)
		case "SNAT":
			err = p.snat(r)
		default:
			err = fmt.Errorf("target: %q is neither DNAT nor SNAT", r.Target)
		}
		if err != nil {
			p.problem(rest.Redirects, r.Name, "%v", err)
		}
	}
}

// dnat plans a redirect that translates destinations.
func (p *plan) dnat(r rest.Redirect) error {
	src, _, err := p.refer("src", r.Src)
	if err == nil && src == nil {
		err = errors.New("src: name the zone from which the packets come")
	}
	t := translation{
		proto:  r.Proto,
		unset:  "tcpudp",
		family: r.Family,
		saddr:  r.SrcIP,
		mac:    r.SrcMAC,
		sport:  r.SrcPort,
		daddr:  r.SrcDIP,
		dport:  r.SrcDPort,
		mark:   r.Mark,
		to:     r.DestIP,
		toPort: destPort(r.DestPort, r.SrcDPort),
	}
	rules, err2 := t.rules("dnat")
	then, _ := t.then("dnat") // rules reports its mistakes
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	src.translates = true
	for _, rule := range rules {
		p.table.add(src.chain("prerouting"), r.Name, rule)
	}
	// a zone as its destination means that it does not lead into the cluster
	if to, err := parseIP(r.DestIP); err == nil && r.Dest == "" && p.behindDefault(to) {
		p.hidden = append(p.hidden, hidden{r.Name, t})
	}
	p.reflect(r, src, then)
	return nil
}

// snat plans a redirect that translates sources.
func (p *plan) snat(r rest.Redirect) error {
	dest, _, err := p.refer("dest", r.Dest)
	if err == nil && dest == nil {
		err = errors.New("dest: name the zone to which the packets go")
	}
	if r.SrcMAC != "" {
		err = errors.Join(err, errors.New("src_mac: a packet that leaves has another one"))
	}
	t := translation{
		proto:  r.Proto,
		unset:  "tcpudp",
		family: r.Family,
		saddr:  r.SrcIP,
		sport:  r.SrcPort,
		daddr:  r.DestIP,
		dport:  r.DestPort,
		mark:   r.Mark,
		to:     r.SrcDIP,
		toPort: r.SrcDPort,
	}
	rules, err2 := t.rules("snat")
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	for _, rule := range rules {
		p.table.add(dest.chain("postrouting"), r.Name, rule)
	}
	return nil
}

// destPort returns the port to which a destination is translated: by default the port that it has,
// so nothing if it may be one of several.
func destPort(dest, src string) string {
	if dest == "" && strings.ContainsAny(src, ",-:") {
		return ""
	}
	return cmp.Or(dest, src)
}

// translation has the conditions of packets that are translated, and the translated address and
// port.
type translation struct {
	proto, unset                                  string
	family, saddr, mac, sport, daddr, dport, mark string
	to, toPort                                    string
}

// rules returns a rule for each protocol. how is dnat, snat or masquerade. A dnat without an
// address is a redirect to the CNF itself.
func (t translation) rules(how string) (out []string, err error) {
	names, err := protocol(t.proto, t.unset)
	if err != nil {
		return nil, err
	}
	var errs []error
	if t.family == "ipv6" {
		errs = append(errs, errors.New("family: only IPv4 is translated"))
	}
	then, err := t.then(how)
	if errs = append(errs, err); len(names) == 0 {
		names = []string{""} // all
	}
	for _, name := range names {
		c := conditions{words: []string{"meta nfproto ipv4"}}
		c.address("source address", "saddr", t.saddr)
		c.address("destination address", "daddr", t.daddr)
		c.mac("src_mac", t.mac)
		c.mark("mark", t.mark)
		var one []string
		if name != "" {
			one = []string{name}
		}
		if t.toPort != "" && !slices.Contains(ported, name) {
			c.errs = append(c.errs,
				errors.New("a port is translated for tcp, udp, udplite and sctp only: set proto to one of these"))
		}
		c.protocolsAndPorts(one, t.sport, t.dport)
		text, err := c.text()
		if errs = append(errs, err); err != nil {
			break // the others have the same mistakes
		}
		out = append(out, text+" "+then)
	}
	return out, errors.Join(errs...)
}

// then returns what is done with a packet.
func (t translation) then(how string) (string, error) {
	if how == "masquerade" {
		return how, nil
	}
	port := ""
	if t.toPort != "" {
		all, err := parsePorts(t.toPort)
		if err == nil && len(all) > 1 {
			err = fmt.Errorf("%q has several ports: use one, or a range such as 1000-2000", t.toPort)
		}
		if err != nil {
			return "", fmt.Errorf("translated port: %w", err)
		}
		port = ":" + all[0].String()
	}
	switch {
	case how != "dnat" || t.to != "":
	case port != "":
		return "redirect to " + port, nil
	case t.dport != "":
		return "redirect", nil
	default:
		return "", errors.New("dest_ip or dest_port is required for DNAT")
	}
	to, err := parseIP(t.to)
	if err != nil {
		return "", fmt.Errorf("translated address: %w", err)
	}
	return fmt.Sprintf("%s ip to %v%s", how, to, port), nil
}

// nats plans the objects of the module nat: those with an index, or those without.
func (p *plan) nats(indexed bool) {
	type placed struct {
		index int
		rest.NAT
	}
	var all []placed
	for _, n := range p.config.NATs {
		index := 0
		if n.Index != "" {
			var err error
			if index, err = strconv.Atoi(n.Index); err != nil || index < 0 {
				if !indexed {
					p.problem(rest.NATs, n.Name, "index %q is not a number from 0", n.Index)
				}
				continue
			}
		}
		if (index > 0) == indexed {
			all = append(all, placed{index, n})
		}
	}
	slices.SortStableFunc(all, func(a, b placed) int { return a.index - b.index })
	for _, n := range all {
		if err := p.nat(n.NAT); err != nil {
			p.problem(rest.NATs, n.Name, "%v", err)
		}
	}
}

func (p *plan) nat(n rest.NAT) error {
	unset := "all"
	if n.SrcPort != "" || n.SrcDPort != "" || n.DestPort != "" {
		unset = "tcpudp"
	}
	t := translation{proto: n.Proto, unset: unset, saddr: n.SrcIP, sport: n.SrcPort}
	chain := "nat_postrouting"
	how := "snat"
	direction := "oifname"
	ref := n.Dest
	switch n.Target {
	case "DNAT":
		chain = "nat_prerouting"
		how = "dnat"
		direction = "iifname"
		ref = n.Src
		t.daddr = n.SrcDIP
		t.dport = n.SrcDPort
		t.to = n.DestIP
		t.toPort = destPort(n.DestPort, n.SrcDPort)
	case "SNAT":
		t.daddr = n.DestIP
		t.dport = n.DestPort
		t.to = n.SrcDIP
		t.toPort = n.SrcDPort
	case "MASQUERADE":
		how = "masquerade"
		t.daddr = n.DestIP
		t.dport = n.DestPort
	default:
		return fmt.Errorf("target: %q is none of DNAT, SNAT and MASQUERADE", n.Target)
	}
	var device string
	if ref != "" || how != "dnat" {
		if ref == "#source" {
			ref = "#" + n.SrcDIP
		}
		dev, err := p.device(ref)
		if err != nil {
			return fmt.Errorf("%s: %w", map[string]string{"oifname": "dest", "iifname": "src"}[direction], err)
		}
		device = devices(direction, []string{dev})
	}
	rules, err := t.rules(how)
	if err != nil {
		return err
	}
	local := ""
	// or packets that pass through to the same port would be translated, too
	if how == "dnat" && n.Src == "" && n.SrcDIP == "" {
		local = "fib daddr type local"
	}
	for _, rule := range rules {
		p.table.add(chain, n.Name, device, local, rule)
	}
	if local != "" && n.DestIP != "" {
		p.hide(n.Name, t)
	}
	return nil
}

// hidden is a redirect into the cluster, with its name; see hide.
type hidden struct {
	note string
	translation
}

// hide plans that the cluster, which is where the default route leads, sees the CNF as the client
// of what a port of the CNF leads to: its replies must come back through the CNF.
func (p *plan) hide(note string, t translation) {
	names, err1 := protocol(t.proto, t.unset)
	to, err2 := parseIP(t.to)
	if err1 != nil || err2 != nil || p.world.Default == "" {
		return // the first two have been reported
	}
	p.leadsTo(to)
	c := conditions{words: []string{"ct status dnat", "ip daddr " + to.String()}}
	c.protocolsAndPorts(names, "", t.toPort)
	if text, err := c.text(); err == nil {
		p.table.add("nat_postrouting", note, devices("oifname", []string{p.world.Default}), text, "masquerade")
	}
}

// services plans the ports of the CNF that lead to Services. The Service's replies must come back
// through the CNF, and so it sees the CNF as the client.
func (p *plan) services() {
	for _, s := range p.config.Services {
		port, err1 := parsePort(s.Port)
		dport, err2 := parsePort(s.DPort)
		ip, known := p.world.Resolved[s.FullName]
		var err3 error
		if !known || !ip.Is4() {
			err3 = fmt.Errorf("fullname: the IPv4 address of %.100q is not known (yet): does the Service exist?",
				s.FullName)
		}
		if err := errors.Join(err1, err2, err3); err != nil {
			p.problem(rest.Services, s.Name, "%v", err)
			continue
		}
		p.leadsTo(ip)
		to := netip.AddrPortFrom(ip, dport)
		p.table.add("nat_prerouting", s.Name,
			fmt.Sprintf("meta nfproto ipv4 fib daddr type local tcp dport %d dnat ip to %v", port, to))
		p.table.add("nat_postrouting", s.Name,
			fmt.Sprintf("ct status dnat ip daddr %v tcp dport %d ct original proto-dst %d masquerade", ip, dport, port))
	}
}
