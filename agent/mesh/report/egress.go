package report

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/agent/mesh"
	"subctl/agent/mesh/members"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
	"subctl/dataplane"
)

// This file is about the use of the global addresses that pods have as their source.

// Conditions of a Gateway. Each is present only if it is False.
const (
	// ConditionEgressPorts is False if a global address has few ports left for a destination.
	ConditionEgressPorts = "EgressPorts"
	// ConditionEgressDistinct is False if several gateways of a cluster announce the same allocated
	// address.
	ConditionEgressDistinct = "EgressDistinct"
)

// reasonScarce is the reason of ConditionEgressPorts.
const reasonScarce = "Scarce"

// egressUses returns the use of global addresses for a report.
func egressUses(sources []dataplane.SourceUse) (out []submarinerv1.EgressUse) {
	for _, u := range sources {
		out = append(
			out,
			submarinerv1.EgressUse{
				Address:            u.Source.String(),
				Connections:        int64(u.Connections),
				Busiest:            u.Busiest(),
				BusiestConnections: int64(u.Most),
			},
		)
	}
	return out
}

// egressConditions returns the conditions of the addresses that pods have as their source, in the
// plan m. Their messages have no number of connections, as each change of a message is an Event.
// While the use of the addresses of an active gateway is not known, as after a restart of its
// agent, ConditionEgressPorts stays as it was: otherwise it would be an Event again.
func egressConditions(s role.Snapshot, m *mesh.Mesh, was []metav1.Condition, now time.Time) (out []metav1.Condition) {
	var scarce []string
	for _, u := range egressUses(s.Flows.Sources) {
		if u.Scarce() {
			scarce = append(
				scarce,
				fmt.Sprintf(
					"%s has few ports left for %s: allocate more addresses (spec.numGlobalIPs, or spec.numberOfIPs of a GlobalEgressIP), or addresses of their own to the pods that connect most",
					u.Address, u.Busiest),
			)
		}
	}
	if s.Standing.Active && !s.Standing.Standby() && len(m.Cables.Wanted) > 0 && !s.Flows.Known {
		if c := meta.FindStatusCondition(was, ConditionEgressPorts); c != nil {
			out = append(out, *c)
		}
	}
	if len(scarce) > 0 {
		out = append(out,
			role.Condition(was, ConditionEgressPorts, false, reasonScarce, role.Clip(strings.Join(scarce, "\n")), now))
	}
	if twice := announcedTwice(m.Accepted, m.Membership.Endpoints); len(twice) > 0 {
		out = append(out,
			role.Condition(was, ConditionEgressDistinct, false, reasonSameAddress, role.Clip(strings.Join(twice, "\n")),
				now))
	}
	return out
}

// announcedTwice returns which allocated addresses several gateways of a cluster announce, in the
// order of their clusters. own are the Endpoints of this cluster.
func announcedTwice(a mesh.Accepted, own []members.Announced) []string {
	type announced struct {
		cluster string
		ip      netip.Addr
	}
	by := map[announced][]string{}
	var order []announced
	note := func(cluster, gateway string, ips []netip.Addr) {
		for _, ip := range ips {
			at := announced{cluster, ip}
			if by[at] = append(by[at], gateway); len(by[at]) == 2 {
				order = append(order, at)
			}
		}
	}
	for _, e := range own {
		if g := e.Gateway; e.Err == nil && g.Drain != cable.Standby {
			note(g.Cluster, g.Host, g.Returned)
		}
	}
	for _, p := range a.Peers {
		if p.Drain != cable.Standby {
			note(p.Cluster, p.Spec.Hostname, p.Returned)
		}
	}
	var out []string
	for _, at := range order {
		slices.Sort(by[at])
		out = append(
			out,
			fmt.Sprintf(
				"gateways %.300s of cluster %s announce the same address %v: replies to it take one of them, and connections through the others stop. "+
					"subctl show globalnet --who %v tells which object of the cluster has it",
				strings.Join(by[at], ", "),
				at.cluster,
				at.ip,
				at.ip,
			),
		)
	}
	return out
}
