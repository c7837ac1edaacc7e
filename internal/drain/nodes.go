package drain

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker/trust"
	"subctl/cluster"
	"subctl/cluster/gatewaynodes"
	"subctl/internal/look"
)

// This file makes nodes gateways, and takes them from the gateways. The agent that replaces gateway
// nodes keeps the number of Submariner.spec.gateways, so that number changes, too: it would undo
// the change otherwise.

// Candidates returns the nodes of a cluster that can become gateways, sorted.
func Candidates(s look.Site) (names []string) {
	for _, n := range s.Nodes {
		if !cluster.IsGateway(n) && unsuited(&n) == "" {
			names = append(names, n.Name)
		}
	}
	slices.Sort(names)
	return names
}

// unsuited returns why a node cannot become a gateway for a person who names it; empty if it can.
// Such a person may choose a node that is excluded from those that are chosen without a person.
func unsuited(n *corev1.Node) string {
	named := n.DeepCopy()
	delete(named.Labels, submarinerv1.GatewayNodeLabel)
	return gatewaynodes.Unsuited(named)
}

// Add plans to make nodes gateways. They count as named by a person, as with join --gateway-nodes,
// and the number of gateway nodes that the cluster keeps grows by their number.
func Add(s look.Site, names []string) (Plan, error) {
	p := Plan{Awaited: names}
	var errs []error
	for _, name := range names {
		n, err := find(s, name)
		switch {
		case err != nil:
			errs = append(errs, err)
		case cluster.IsGateway(*n):
			p.Notes = append(p.Notes, fmt.Sprintf("node %s is a gateway already", name))
		case unsuited(n) != "":
			errs = append(errs, fmt.Errorf("node %q cannot become a gateway: %s", name, unsuited(n)))
		default:
			p.change(n, func(a map[string]string) { a[cluster.LabelledByAnnotation] = cluster.ManagedBy })
			if n.Labels == nil {
				n.Labels = map[string]string{}
			}
			n.Labels[submarinerv1.GatewayNodeLabel] = "true"
		}
	}
	if kept := s.Submariner.Spec.Gateways; kept != nil && *kept > 0 {
		p.keep(s, min(*kept+int32(len(p.Nodes)), trust.MaxGateways),
			append(slices.Clone(s.Submariner.Spec.GatewayNodes), p.changed()...))
	}
	return p, errors.Join(errs...)
}

// Remove plans to take nodes from the gateways; Drain comes before. Fewer gateway nodes are kept
// from then on, if the rest is fewer.
func Remove(s look.Site, names []string) Plan {
	var p Plan
	rest := int32(0)
	for _, n := range s.Nodes {
		switch {
		case !slices.Contains(names, n.Name):
			if cluster.IsGateway(n) {
				rest++
			}
		case cluster.IsGateway(n):
			p.change(n.DeepCopy(), func(a map[string]string) {
				delete(a, cluster.LabelledByAnnotation)
				delete(a, submarinerv1.DrainAnnotation)
			})
			delete(p.Nodes[len(p.Nodes)-1].Labels, submarinerv1.GatewayNodeLabel)
		}
	}
	if kept := s.Submariner.Spec.Gateways; kept != nil {
		p.keep(s, min(*kept, rest), slices.DeleteFunc(slices.Clone(s.Submariner.Spec.GatewayNodes),
			func(n string) bool { return slices.Contains(names, n) }))
	}
	return p
}

// changed returns the names of the nodes to change.
func (p *Plan) changed() (names []string) {
	for _, n := range p.Nodes {
		names = append(names, n.Name)
	}
	return names
}

// keep plans the number of gateway nodes that the cluster keeps, and those that a person has named.
func (p *Plan) keep(s look.Site, number int32, named []string) {
	slices.Sort(named)
	named = slices.Compact(named)
	if number == *s.Submariner.Spec.Gateways && slices.Equal(named, s.Submariner.Spec.GatewayNodes) {
		return
	}
	p.wasKept = s.Submariner
	p.Kept = s.Submariner.DeepCopy()
	p.Kept.Spec.Gateways = &number
	p.Kept.Spec.GatewayNodes = named
}
