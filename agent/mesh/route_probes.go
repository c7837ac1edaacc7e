package mesh

import (
	"net/netip"
	"slices"

	"subctl/agent/mesh/members"
	"subctl/agent/role"
	"subctl/cable"
	"subctl/dataplane"
)

// maxProbingNodes is the maximum number of nodes of a cluster whose route agents probe: in larger
// clusters only gateways do.
const maxProbingNodes = 500

// pathInterval is the time between pings of route agents, as a multiple of the time between pings
// of gateways.
const pathInterval = 60 // upstream's

// Messages of paths that are not probed. The first three are the words of upstream.
const (
	healthOff     = "Health check is not enabled"
	notOnGateways = "Health check is not performed on gateway nodes"
	noHealthIP    = "Health checker IP is not configured"
	noPodIP       = "Health check is not performed: the node has no address in the pod network"
	tooManyNodes  = "Health check is not performed by the nodes of a cluster of more than 500"
)

// pathProbes returns the addresses that the route agent pings from an address of its node: the
// health check IP of each remote gateway to which there is a cable.
func (c Cables) pathProbes(m members.Membership, from netip.Addr) role.Probes {
	hc := m.Submariner.Spec.HealthCheck()
	p := role.Probes{
		Interval: pathInterval * hc.Interval(),
		Retry:    hc.Interval(),
		MaxLost:  int(hc.MaxPacketLossCount),
		Targets:  map[string]role.Target{},
	}
	for _, w := range c.Wanted {
		if Unprobed(m, from, w.HealthIP) == "" {
			p.Targets[w.Name] = role.Target{IP: w.HealthIP, From: from}
		}
	}
	return p
}

// Unprobed returns why the route agent does not ping the health check IP of a remote
// gateway from an address of its node; empty if it does.
func Unprobed(m members.Membership, from, ip netip.Addr) string {
	switch {
	case !m.Submariner.Spec.HealthCheck().Enabled:
		return healthOff
	case slices.ContainsFunc(m.Gateways, func(g cable.Node) bool { return g.Name == m.Self.Name }):
		return notOnGateways
	case !ip.IsValid():
		return noHealthIP
	case !from.IsValid():
		return noPodIP
	case len(m.Nodes) > maxProbingNodes:
		return tooManyNodes
	}
	return ""
}

// forwardProbe returns the probe of whether the node forwards packets of other clusters to pods;
// the zero value if there are no other clusters.
func (p Plan) forwardProbe(in cable.Intra) (probe dataplane.ForwardProbe) {
	if len(in.Remote) == 0 || len(in.Remote[0].Subnets) == 0 {
		return probe
	}
	_, mac := cable.VTEP(dataplane.IntraVTEPNet, in.Self.IP)
	nets := in.Remote[0].Subnets
	probe = dataplane.ForwardProbe{
		Dev: dataplane.IntraDevice, MAC: mac, Pods: in.Local.Pods,
		From: nets[len(nets)-1].Masked().Addr().Next(), // announced last is a pod network
	}
	for _, n := range p.Mesh.Membership.Nodes {
		isSelf := func(g cable.Node) bool { return g.Name == in.Self.Name }
		if !isSelf(n) && n.Pods.IsValid() && !probe.Far.IsValid() && slices.ContainsFunc(in.Gateways, isSelf) {
			probe.Far = n.Pods.Masked().Addr().Next().Next()
		}
	}
	return probe
}
