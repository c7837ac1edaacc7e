package cable

import (
	"net/netip"
	"slices"

	"subctl/dataplane"
)

// sources returns the table that keeps the sources of packets between this cluster and other
// clusters. A gateway masquerades a connection to a Service if the CNI brings its packets to the
// node of the pod, and the pod's replies may reach another gateway: that node does not know the
// gateway of the connection, as Returns marks only packets that arrive over the VXLAN between
// nodes. A standby is such a gateway: the replies of pods on its own node take its cables. So is
// one with a global network: a gateway can translate a reply for another gateway in the midst of a
// TCP connection, but not the first reply.
func (n Intra) sources(remote []netip.Prefix) dataplane.Sources {
	s := dataplane.Sources{
		Table: dataplane.RouteOwner.NFTable, Local: set("", n.Local.Pods).Members, Remote: remote, Node: n.PodIP,
		Announced: n.announced(),
	}
	if s.Masquerades = n.isGateway() && len(n.Gateways) > 1 && n.elsewhere(); s.Masquerades {
		s.Here = n.Self.Pods
	}
	return s
}

// elsewhere reports whether the CNI leads to the pods of another node: the network of its pods is not known.
func (n Intra) elsewhere() bool {
	for _, nodes := range [][]Node{n.siblings(), n.Workers} {
		for _, other := range nodes {
			if !other.Pods.IsValid() {
				return true
			}
		}
	}
	return false
}

// announced returns the networks of this cluster to which other clusters may send through cables.
func (n Intra) announced() []netip.Prefix {
	return set("", slices.Concat(n.Local.Pods, n.Local.Services, n.Local.Global)).Members
}
