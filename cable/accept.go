package cable

import (
	"fmt"
	"slices"

	"subctl/dataplane"
	"subctl/internal/prefix"
)

// accepts returns the chain that accepts what a node forwards between its pods and other clusters,
// if no rule of another program has decided about it: it comes after all of them, so network
// policies that iptables applies still count, and before the policy DROP that Docker, ufw and
// administrators give to FORWARD, or a rule that rejects everything.
//
// Packets arrive on our devices, from sources that the tables against forged packets and, on a
// gateway, the chains of the cables have checked. kube-proxy may choose an address of a node as the
// destination behind a Service.
func (n Intra) accepts() dataplane.Chain {
	c := dataplane.Chain{Table: "filter", Name: "SUBMARINER-LAST", Hook: "FORWARD", Last: true}
	devices := []string{dataplane.IntraDevice}
	if n.isGateway() {
		cables := slices.Sorted(slices.Values(outputs(n.cableDevices())))
		for _, dev := range cables {
			c.Rules = append(c.Rules, fmt.Sprintf("-i %s -m conntrack --ctstate DNAT -j ACCEPT", dev))
			c.Rules = append(c.Rules, fmt.Sprintf("-o %s -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT", dev))
		}
		devices = append(devices, cables...)
	}
	for _, dev := range devices {
		for _, pods := range prefix.Widest(n.Local.Pods) {
			c.Rules = append(c.Rules, fmt.Sprintf("-d %v -i %s -j ACCEPT", pods, dev),
				fmt.Sprintf("-s %v -o %s -j ACCEPT", pods, dev))
		}
	}
	return c
}

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
