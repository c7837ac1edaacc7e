package cnf

import (
	"errors"
	"fmt"
	"strings"

	"subctl/dataplane"
	"subctl/sdewan/rest"
)

// rules plans the rules of the firewall.
func (p *plan) rules() {
	for _, r := range p.config.Firewall {
		if err := p.rule(r); err != nil {
			p.problem(rest.FirewallRules, r.Name, "%v", err)
		}
	}
}

// rule plans one rule. Without src, it concerns what the CNF sends itself; without dest, what is
// for the CNF.
func (p *plan) rule(r rest.FirewallRule) error {
	src, anySrc, err1 := p.refer("src", r.Src)
	dest, anyDest, err2 := p.refer("dest", r.Dest)
	matches, err3 := ruleMatches(r, "tcpudp")
	var c conditions
	c.family(r.Family)
	family, err4 := c.text()
	target, err5 := target(r)
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		return err
	}
	for _, match := range matches {
		var arrives, leaves string
		if src != nil {
			arrives = src.arrives()
		}
		if dest != nil {
			leaves = dest.leaves()
		}
		if src != nil && src.empty() || dest != nil && dest.empty() {
			continue
		}
		if neverMatches(strings.Join([]string{family, arrives, leaves, match}, " ")) {
			return errNeverMatches
		}
		switch r.Target {
		case "MARK":
			p.table.add(markChain(src, dest, anySrc, anyDest), r.Name, family, arrives, leaves, match, target)
		case "NOTRACK":
			if r.Src == "" {
				return errors.New("src is missing: NOTRACK concerns what arrives from a zone")
			}
			p.table.add("raw_prerouting", r.Name, family, arrives, match, target)
		default:
			p.addRule(ruleChain(r, src, dest), r.Name, family, leaves, match, target)
		}
	}
	return nil
}

// addRule adds a rule to the rules of a chain. They have a chain of their own, to the end of which
// nft(8) can add one without reading all others first.
func (p *plan) addRule(chain, note string, words ...string) {
	rules := chain + "_rules"
	if p.table.chains[rules] == nil {
		p.table.add(chain, "", "jump", rules)
	}
	p.table.add(rules, note, words...)
}

// ruleChain returns the chain of a rule that accepts or refuses packets.
func ruleChain(r rest.FirewallRule, src, dest *zone) string {
	switch {
	case src != nil && r.Dest != "":
		return src.chain("forward")
	case src != nil:
		return src.chain("input")
	case r.Src == anyZone && r.Dest != "":
		return "fw_forward"
	case r.Src == anyZone:
		return "fw_input"
	case dest != nil:
		return dest.chain("output")
	}
	return "fw_output"
}

// markChain returns the chain of a rule that marks packets.
func markChain(src, dest *zone, anySrc, anyDest bool) string {
	switch {
	case (src != nil || anySrc) && anyDest:
		return "mark_prerouting"
	case src != nil && dest != nil:
		return "mark_forward"
	case src != nil || anySrc && dest == nil:
		return "mark_input"
	case dest != nil:
		return "mark_postrouting"
	}
	return "mark_output"
}

// ruleMatches returns the conditions of a rule on the packet itself: of several rules, if it has
// several types of ICMP.
func ruleMatches(r rest.FirewallRule, unset string) ([]string, error) {
	var c conditions
	if r.Extra != "" {
		c.errs = append(
			c.errs,
			errors.New(
				"extra: options of iptables are not supported, and without them the rule would match more: use the other fields"),
		)
	}
	c.address("src_ip", "saddr", r.SrcIP)
	c.address("dest_ip", "daddr", r.DestIP)
	c.mac("src_mac", r.SrcMAC)
	c.mark("mark", r.Mark)
	names, err := protocol(r.Proto, unset)
	if err != nil {
		c.errs = append(c.errs, err)
		return nil, errors.Join(c.errs...)
	}
	if r.Proto != "icmp" || len(r.ICMPType) == 0 {
		if r.Proto == "icmp" && r.SrcIP == "" && r.DestIP == "" && r.Family != "ipv4" {
			names = []string{"icmp", "ipv6-icmp"}
		}
		c.protocolsAndPorts(names, r.SrcPort, r.DestPort)
		text, err := c.text()
		return []string{text}, err
	}
	text, _ := c.text()
	var out []string
	for _, name := range r.ICMPType {
		match, err := icmp(name)
		c.errs = append(c.errs, err)
		out = append(out, strings.TrimSpace(text+" "+match))
	}
	return out, errors.Join(c.errs...)
}

// target returns what a rule does.
func target(r rest.FirewallRule) (string, error) {
	switch r.Target {
	case "":
		return verdicts["REJECT"], nil
	case "ACCEPT", "REJECT", "DROP":
		return verdicts[r.Target], nil
	case "NOTRACK":
		return "notrack", nil
	case "MARK":
		return setMark(r)
	}
	return "", fmt.Errorf("target: %q is none of ACCEPT, REJECT, DROP, MARK and NOTRACK", r.Target)
}

// reserved are the bits of marks that no rule changes: they decide whether packets enter tunnels,
// and reach the CNF's controller.
const reserved = dataplane.TunnelMark | dataplane.ControlMark

// setMark returns what sets the mark: set_mark clears the bits of the mask and sets those of the
// value, set_xmark inverts the latter.
func setMark(r rest.FirewallRule) (string, error) {
	const set = "meta mark set meta mark & %#08x ^ %#08x"
	switch {
	case r.SetMark != "":
		value, mask, err := parseMark(r.SetMark)
		if err != nil {
			return "", fmt.Errorf("set_mark: %w", err)
		}
		return fmt.Sprintf(set, ^(mask|value)|reserved, value&^reserved), nil
	case r.SetXMark != "":
		value, mask, err := parseMark(r.SetXMark)
		if err != nil {
			return "", fmt.Errorf("set_xmark: %w", err)
		}
		return fmt.Sprintf(set, ^mask|reserved, value&^reserved), nil
	}
	return "", errors.New("set_mark or set_xmark is required for MARK")
}

// networkRules plans the rules of the module networkfirewall, which name devices. They come after
// those of zones.
func (p *plan) networkRules() {
	for _, r := range p.config.Network {
		matches, err := ruleMatches(r, "all")
		then, err2 := target(r)
		var in, out string
		var err3, err4 error
		if in, err3 = p.device(r.Src); err3 != nil {
			err3 = fmt.Errorf("src: %w", err3)
		}
		if r.Dest != "" {
			if out, err4 = p.device(r.Dest); err4 != nil {
				err4 = fmt.Errorf("dest: %w", err4)
			}
		}
		if err := errors.Join(err, err2, err3, err4); err != nil {
			p.problem(rest.NetworkRules, r.Name, "%v", err)
			continue
		}
		chain := "fw_input"
		leaves := ""
		if r.Dest != "" {
			chain = "fw_forward"
			leaves = devices("oifname", []string{out})
		}
		switch r.Target {
		case "MARK":
			chain = "mark_prerouting"
			leaves = ""
		case "NOTRACK":
			chain = "raw_prerouting"
			leaves = ""
		}
		for _, match := range matches {
			p.table.add(chain, r.Name, devices("iifname", []string{in}), leaves, match, then)
		}
	}
}
