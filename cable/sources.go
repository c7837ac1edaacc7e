package cable

import (
	"net/netip"

	"subctl/dataplane"
)

// sources returns the table that keeps the sources of packets between this cluster and other clusters. A gateway masquerades a connection to a
// Service if the CNI brings its packets to the node of the pod, and the pod's replies may reach another gateway: that node does not know the gateway of
// the connection, as Returns marks only packets that arrive over the VXLAN between nodes. Standbys change nothing: a standby gets replies only if the
// active gateway has failed, and then the connections that the active gateway has translated end anyway. Global networks do: a gateway can translate
// a reply for another gateway in the midst of a TCP connection, but not the first reply.
func (n Intra) sources(remote []netip.Prefix) dataplane.Sources {
	s := dataplane.Sources{Table: dataplane.RouteOwner.NFTable, Local: set("", n.Local.Pods).Members, Remote: remote, Node: n.PodIP}
	if s.Masquerades = n.isGateway() && n.carriers() > 1 && n.elsewhere(); s.Masquerades {
		s.Here = n.Self.Pods
	}
	return s
}

// carriers returns the number of gateways that may carry packets while all answer.
func (n Intra) carriers() (count int) {
	for _, g := range n.Gateways {
		if g.Drain != Standby {
			count++
		}
	}
	return count
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
