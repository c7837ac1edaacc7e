package cluster

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/api/crds"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker/exchange"
)

// Render returns the objects of a plain cluster that is joined as sub describes: see
// Platform.Render.
func Render(sub *v1alpha1.Submariner) ([]client.Object, error) { return Platform{}.Render(sub) }

// Render returns all objects of a cluster that is joined as sub describes, except the
// Secrets (see Secrets), in an order in which they can be created. It depends only on sub and p.
// It fails only if the embedded CRDs are broken.
func (p Platform) Render(sub *v1alpha1.Submariner) ([]client.Object, error) {
	defs, err := crds.All()
	if err != nil {
		return nil, err
	}
	out := []client.Object{namespace(), CriticalPods(Namespace)}
	for _, def := range defs {
		def.Labels = merged(def.Labels, ours(""))
		out = append(out, def)
	}
	for _, role := range crds.UserRoles() {
		role.Labels = merged(role.Labels, ours(""))
		out = append(out, role)
	}
	translated := slices.Concat(nodeRules, networkRules)
	if sub.Spec.GlobalCIDR != "" {
		translated = slices.Concat(translated, translationRules)
	}
	out = append(out, account(GatewayName, append(gatewayRules(), p.Use(SCCPrivileged)...), translated)...)
	out = append(out, account(RouteAgentName, append(routeAgentRules(), p.Use(SCCPrivileged)...), nodeRules)...)
	out = append(out, agentPolicies(sub.Spec.ClusterID)...)
	out = append(out, labelPolicy(exchange.Kinds())...)
	out = append(out, nodePolicy()...)
	memory := exchange.NewMemory(Namespace)
	memory.Labels = ours("")
	out = append(out, memory, submariner(sub), routeAgent(sub), gateway(sub, p.BrokenGateways))
	if KeepsGateways(sub) {
		out = append(out, gatewayNodes(sub, p)...)
	}
	shared, err := servicesDefinitions(sub)
	if err != nil {
		return nil, err
	}
	out = append(out, shared...)
	if sub.Spec.GlobalCIDR != "" {
		out = append(out, globalnet(sub, p)...)
	}
	if sub.Spec.ServiceDiscoveryEnabled {
		out = append(out, serviceDiscovery(sub, p)...)
	}
	return out, nil
}

// namespace returns the namespace, in which pods may use the network of their node. The API server
// neither warns of such pods nor logs them, whatever its defaults are.
func namespace() *corev1.Namespace {
	labels := ours("")
	for _, mode := range []string{"enforce", "audit", "warn"} {
		labels["pod-security.kubernetes.io/"+mode] = "privileged"
	}
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace, Labels: labels}}
}

// submariner returns sub as it is stored: with the finalizer that delays its deletion until
// every node is clean.
func submariner(sub *v1alpha1.Submariner) *v1alpha1.Submariner {
	return &v1alpha1.Submariner{
		ObjectMeta: metav1.ObjectMeta{
			Name: v1alpha1.SubmarinerName, Namespace: Namespace,
			Labels: merged(sub.Labels, ours("")), Annotations: sub.Annotations,
			Finalizers: []string{v1alpha1.UninstallFinalizer},
		},
		Spec: *sub.Spec.DeepCopy(),
	}
}

// merged returns the entries of all maps; later entries win.
func merged(maps ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range maps {
		for k, v := range m {
			out[k] = v
		}
	}
	return out
}
