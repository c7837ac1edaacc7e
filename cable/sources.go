package cable

import (
	"net/netip"

	"subctl/dataplane"
)

// sources returns the table that keeps the sources of packets between this cluster and other ones. On a gateway it does not keep those of
// connections to Services whose pod is on a node that the CNI leads to, if the pod's replies may reach another gateway: their node knows no gateway
// for them, as Returns sees only what arrives over the VXLAN between nodes. A standby gets replies only where the active gateway has failed, and its
// connections to Services with it: clients would be hidden for nothing. With global networks, the gateways can translate the replies of each other
// later in a connection, but not the first one, which begins a TCP connection.
func (n Intra) sources(remote []netip.Prefix) dataplane.Sources {
	s := dataplane.Sources{Table: dataplane.RouteOwner.NFTable, Local: set("", n.Local.Pods).Members, Remote: remote}
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
