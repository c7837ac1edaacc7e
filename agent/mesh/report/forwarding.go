package report

import (
	"fmt"
	"slices"
	"strings"

	"subctl/agent/mesh"
	"subctl/cable"
	"subctl/dataplane"
)

// refusedForwarding returns a message about what drops packets of other clusters to pods; empty if
// nothing is known to.
func refusedForwarding(p mesh.Plan, f dataplane.Forwarded) string {
	by := f.By
	if !f.Known || by == (dataplane.Dropper{}) || !p.Forward.From.IsValid() {
		return ""
	}
	devices := []string{dataplane.IntraDevice}
	for _, c := range p.Mesh.Cables.Wanted {
		if dev := c.Device(); carriesCables(p) && !slices.Contains(devices, dev) {
			devices = append(devices, dev)
		}
	}
	what := fmt.Sprintf("this node does not forward packets of other clusters to pods: one from %v to %v",
		p.Forward.From, f.To)
	if by.Legacy {
		return what + " is dropped by a rule of iptables-legacy, whose accept is not ours to give while this agent's " +
			"rules are in nftables: see iptables-legacy-save, and remove the rule, or have the node use iptables-nft " +
			"alone"
	}
	rule := fmt.Sprintf("rule %d", by.Rule)
	if by.Rule == 0 {
		rule = "the policy"
	}
	where := fmt.Sprintf("%s %s %s", by.Family, by.Table, by.Chain)
	return fmt.Sprintf("%s, arriving on %s, is dropped or rejected by %s of chain %s in table %s %s (nft -a list "+
		"chain %s). %s",
		what, p.Forward.Dev, rule, by.Chain, by.Family, by.Table, where, remedy(by, devices))
}

// carriesCables reports whether this node is a gateway.
func carriesCables(p mesh.Plan) bool {
	m := p.Mesh.Membership
	return slices.ContainsFunc(m.Gateways, func(g cable.Node) bool { return g.Name == m.Self.Name })
}

// remedy returns what allows packets that arrive on devices.
func remedy(by dataplane.Dropper, devices []string) string {
	var commands []string
	switch each := func(format string) {
		for _, dev := range devices {
			commands = append(commands, fmt.Sprintf(format, dev))
		}
	}; {
	case by.Table == "firewalld":
		each("firewall-cmd --permanent --zone=trusted --add-interface=%s")
		commands = append(commands, fmt.Sprintf("firewall-cmd --permanent --add-port=%d/udp", dataplane.IntraPort),
			"firewall-cmd --reload")
	case by.Chain == "ufw-user-forward": // a rule at its end would not be reached
		each("ufw route insert 1 allow in on %s")
	case strings.HasPrefix(by.Chain, "ufw-"):
		each("ufw route allow in on %s")
	case by.Family == "ip" && slices.Contains([]string{"raw", "mangle", "nat", "filter"}, by.Table):
		return fmt.Sprintf("The rule is one of iptables: see iptables -t %s -S %s, and remove it or except %s",
			by.Table, by.Chain, strings.Join(devices, ", "))
	default:
		each(fmt.Sprintf("nft insert rule %s %s %s iifname %%s counter accept", by.Family, by.Table, by.Chain))
		return "Allow it there, and in the file from which the node loads its rules: " + strings.Join(commands, " && ")
	}
	return "Allow it: " + strings.Join(commands, " && ")
}
