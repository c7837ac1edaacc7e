package mesh

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"subctl/agent/mesh/members"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
	"subctl/globalnet"
)

// TranslatedKinds lists the kinds of objects, in all namespaces, that a gateway of a cluster with
// global networks uses for translation.
func TranslatedKinds() []role.Object {
	return []role.Object{
		&submarinerv1.ClusterGlobalEgressIP{}, &submarinerv1.GlobalEgressIP{}, &submarinerv1.GlobalIngressIP{},
		&corev1.Service{}, &corev1.Pod{}, &discoveryv1.EndpointSlice{},
	}
}

// translate fills in Translates, and the address of this gateway that answers pings of other
// clusters.
func (o *Offer) translate(s role.Snapshot, m members.Membership) {
	if len(m.Own.Global) == 0 || !role.IsGatewayNode(role.Find[*corev1.Node](s, s.Node)) {
		return
	}
	g := globalnet.Gateway{
		Node: s.Node, NodeIP: m.Self.IP, PodIP: o.Local.PodIP, Nets: m.Own.Global, Pods: m.Own.Pods,
		Several: m.Submariner.Spec.MultiActiveGatewayEnabled, Standby: s.Standing.Standby(),
	}
	// no pod's packets take it
	gateways := slices.DeleteFunc(slices.Clone(m.Gateways), func(n cable.Node) bool { return n.Drain == cable.Drained })
	if len(gateways) == 0 {
		gateways = m.Gateways
	}
	for _, n := range gateways {
		g.Gateways = append(g.Gateways, n.Name)
	}
	translate := globalnet.Translate
	if s.Translator != nil {
		translate = s.Translator.Translate
	}
	o.Translates = translate(g, globalnet.Objects{
		Ingress: role.List[*submarinerv1.GlobalIngressIP](
			s),
		Egress:        role.List[*submarinerv1.GlobalEgressIP](s),
		ClusterEgress: role.List[*submarinerv1.ClusterGlobalEgressIP](s),
		Services:      role.List[*corev1.Service](s),
		Slices:        role.List[*discoveryv1.EndpointSlice](s),
		Pods:          role.List[*corev1.Pod](s),
	})
	o.Local.HealthIP = o.Translates.Health
}
