package look

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/dataplane"
	"subctl/internal/words"
)

// Firewalled returns a line for each node that does not forward packets of other clusters to its
// pods, with the reason, and a line for the nodes that get no packets of other clusters.
func (s Site) Firewalled() (lines []string) {
	if cut := s.cutOff(); len(cut) > 0 {
		lines = append(lines, fmt.Sprintf("no other cluster answers the pings of %s, although gateways of this "+
			"cluster are connected: perhaps a firewall of the node, or between the nodes of the cluster, drops UDP "+
			"%d, the VXLAN between them: allow it, such as with firewall-cmd --permanent --add-port=%[2]d/udp && "+
			"firewall-cmd --reload, or ufw allow %[2]d/udp", words.List(cut), dataplane.IntraPort))
	}
	for _, ra := range s.RouteAgents {
		c := meta.FindStatusCondition(ra.Status.Conditions, role.ConditionPacketsForwarded)
		if c != nil && role.Wrong(*c) {
			lines = append(lines, fmt.Sprintf("node %s: %s", ra.Name, c.Message))
		}
	}
	return lines
}

// cutOff returns the nodes whose pings no other cluster answers, although gateways of this cluster
// are connected to one that should: what a worker is sent arrives from its gateways, on a device of
// ours.
func (s Site) cutOff() (nodes []string) {
	connected := map[string]bool{}
	for _, gw := range s.Current() {
		if Stale(gw, s.Now) != "" {
			continue
		}
		for _, c := range gw.Status.Connections {
			connected[c.Endpoint.ClusterID] = connected[c.Endpoint.ClusterID] || c.Status == submarinerv1.Connected
		}
	}
	for _, ra := range s.RouteAgents {
		answers := func(r submarinerv1.RemoteEndpoint) bool { return r.Status == submarinerv1.Connected }
		silent := func(r submarinerv1.RemoteEndpoint) bool {
			return r.Status == submarinerv1.ConnectionError && connected[r.Spec.ClusterID]
		}
		paths := ra.Status.RemoteEndpoints
		if slices.ContainsFunc(paths, silent) && !slices.ContainsFunc(paths, answers) {
			nodes = append(nodes, ra.Name)
		}
	}
	return nodes
}
