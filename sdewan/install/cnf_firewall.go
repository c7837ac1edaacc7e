package install

import (
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "subctl/api/sdewan/v1alpha1"
	"subctl/sdewan"
)

// Firewall returns rules for a CNF that is the router of a site: hosts of its LANs reach the CNF
// and the Internet, from the address of the uplink, and nobody on the Internet reaches either,
// except that the CNF answers pings, and the other ends of its tunnels.
func (c CNF) Firewall() ([]client.Object, error) {
	var lan, wan []batch.NetworkName
	for _, n := range c.Networks {
		if _, uplink := c.Uplinks[n.Name]; uplink {
			wan = append(wan, batch.NetworkName(n.Name))
		} else {
			lan = append(lan, batch.NetworkName(n.Name))
		}
	}
	if len(wan) == 0 {
		return nil, errors.New("--firewall needs --uplinks: the networks from which nobody gets in")
	}
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Name:      c.Name + "-" + name,
			Namespace: c.Namespace,
			Labels:    map[string]string{sdewan.PurposeLabel: c.Purpose},
		}
	}
	inside := batch.ZoneName(meta("lan").Name)
	outside := batch.ZoneName(meta("wan").Name)
	out := []client.Object{&batch.FirewallZone{ObjectMeta: meta("wan"), Spec: batch.FirewallZoneSpec{
		Network: wan,
		Masq:    "1",
		MTUFix:  "1",
		Input:   "DROP",
		Forward: "DROP",
		Output:  "ACCEPT",
	}}}
	if len(lan) > 0 {
		out = append(
			out,
			&batch.FirewallZone{ObjectMeta: meta("lan"), Spec: batch.FirewallZoneSpec{
				Network: lan,
				Input:   "ACCEPT",
				Forward: "ACCEPT",
				Output:  "ACCEPT",
			}},
			&batch.FirewallForwarding{
				ObjectMeta: meta("lan-to-wan"),
				Spec:       batch.FirewallForwardingSpec{Src: inside, Dest: outside},
			},
		)
	}
	accept := func(name string, s batch.FirewallRuleSpec) {
		s.Src = outside
		s.Target = "ACCEPT"
		out = append(out, &batch.FirewallRule{ObjectMeta: meta(name), Spec: s})
	}
	accept("ping", batch.FirewallRuleSpec{Proto: "icmp", ICMPType: []batch.ICMPType{"echo-request"}})
	accept("ike", batch.FirewallRuleSpec{Proto: "udp", DestPort: "500,4500"})
	accept("esp", batch.FirewallRuleSpec{Proto: "esp"})
	return out, nil
}
