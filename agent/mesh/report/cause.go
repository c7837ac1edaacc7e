package report

import (
	"fmt"
	"strings"

	"subctl/agent/mesh"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
	"subctl/dataplane"
)

// This file is about why a connection does not work, or not for long: what the gateways know of
// each other.

// likelyCause returns why the cable does not answer, as far as it can be told from here.
func (r cableResult) likelyCause() string {
	c := r.cable
	local := r.plan.Mesh.Offer.Local
	if r.broken != nil {
		return "this node could not set it up: " + r.broken.Error()
	}
	if gone := r.describeDeadAgent(); gone != "" {
		return gone
	}
	var causes []string
	if path := r.plan.Mesh.Snapshot.Paths[c.Name]; path.Done && !path.Address.IsValid() {
		causes = append(causes, fmt.Sprintf("gateway %s of cluster %s is down or gone, as UDP port %d does not "+
			"answer either", c.Host, c.Cluster, dataplane.NATDiscoveryPort))
	}
	path := fmt.Sprintf("a firewall between %v and %v drops %s", local.PrivateIP, c.Address,
		strings.Join(r.link.Passes, " or "))
	switch {
	case r.stateful && r.state.Up:
		causes = append(causes, "the gateways have agreed on keys, but packets do not pass: "+path)
	case r.stateful && r.state.Message != "":
		causes = append(causes, r.state.Message, path)
	default:
		causes = append(causes, path)
	}
	causes = append(causes, fmt.Sprintf("cluster %s does not use %s, because it does not have the policy or could "+
		"not set up the cable (subctl show connections there)", c.Cluster, c.Driver.Name()))
	if mtu := c.Peer.MTU; mtu != 0 && mtu < local.MTU {
		causes = append(causes, fmt.Sprintf("packets are lost because the path carries at most %d bytes, less than "+
			"this node's MTU of %d", mtu, local.MTU))
	}
	return strings.Join(causes, "; or ")
}

// isAgentLost reports whether the agent of a gateway has answered before, and does not any more.
func isAgentLost(m *mesh.Mesh, g cable.Gateway) bool { return m.Snapshot.Paths[g.Name].Lost }

// describeDeadAgent describes a gateway whose agent does not answer any more, to which the cable
// does not answer either; empty if the agent does.
func (r cableResult) describeDeadAgent() string {
	m := r.plan.Mesh
	c := r.cable
	if !isAgentLost(m, c.Gateway) {
		return ""
	}
	for _, p := range m.Accepted.Peers {
		if p.Cluster == c.Cluster && p.Name != c.Name && !isAgentLost(m, p.Gateway) {
			return fmt.Sprintf("gateway %s of cluster %s is down or gone, as its agent does not answer any more; "+
				"cluster %s has other gateways", c.Host, c.Cluster, c.Cluster)
		}
	}
	return fmt.Sprintf("cluster %s has no gateway now: gateway %s is down or gone, as its agent does not answer any "+
		"more; or the network between %v and %v is interrupted",
		c.Cluster, c.Host, m.Offer.Local.PrivateIP, c.Address)
}

// addCause adds to a connection what its gateways know of agents that do not run, and corrects the
// status of a cable that is not probed, and whose other gateway is gone.
func (r cableResult) addCause(conn *submarinerv1.Connection) {
	if r.broken != nil || r.cable.Idle || r.cable.Silent {
		return // it is described already
	}
	m := r.plan.Mesh
	c := r.cable
	_, probed, _ := r.health()
	healthy := conn.Status == submarinerv1.Connected
	switch remote := m.Membership.Clusters[c.Cluster]; {
	case len(m.Membership.Own.Global) > 0 && !m.Offer.Local.HealthIP.IsValid():
		conn.StatusMessage = "this gateway has no global address, so that nothing of its cluster reaches other " +
			"clusters through it: the globalnet agent has allocated none (subctl show globalnet)"
	case isAgentLost(m, c.Gateway) && healthy && !probed && !r.stateful:
		conn.Status = submarinerv1.ConnectionError
		conn.StatusMessage = role.Clip(r.describeDeadAgent())
	case isAgentLost(m, c.Gateway) && healthy:
		conn.StatusMessage = fmt.Sprintf("packets pass, but the agent of gateway %s of cluster %s does not answer "+
			"any more: changes do not reach it", c.Host, c.Cluster)
	case isAgentLost(m, c.Gateway):
		r.appendCause(conn, r.describeDeadAgent())
	case remote != nil && len(remote.Spec.GlobalCIDR) > 0 && !c.HealthIP.IsValid():
		r.appendCause(conn, fmt.Sprintf("gateway %s of cluster %s has no global address, so that nothing of its cluster "+
			"reaches other clusters through it: the globalnet agent there has allocated none (subctl show globalnet "+
			"there)", c.Host, c.Cluster))
	case c.NotRunning != "":
		r.appendCause(conn,
			fmt.Sprintf("cluster %s reports that some of its agents do not run: %s", c.Cluster, c.NotRunning))
	}
}

// appendCause adds the cause of what is wrong to the message of a connection. What a healthy
// connection has as its message is no problem.
func (r cableResult) appendCause(conn *submarinerv1.Connection, cause string) {
	if conn.Status != submarinerv1.Connected && conn.StatusMessage != "" && conn.StatusMessage != waitingForPing {
		cause = conn.StatusMessage + ". Likely cause: " + cause
	}
	conn.StatusMessage = role.Clip(cause)
}

// whySilent returns why a cable that has answered before is silent.
func (r cableResult) whySilent() string {
	if gone := r.describeDeadAgent(); gone != "" {
		return gone
	}
	return fmt.Sprintf("gateway %s of cluster %s is down; or %s", r.cable.Host, r.cable.Cluster, r.likelyCause())
}
