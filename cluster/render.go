package cluster

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/api/crds"
	"subctl/api/submariner/v1alpha1"
)

// Render returns everything that a cluster joined as sub says holds, but for the
// Secrets (see Secrets), in the order in which it can be made. It is a function of
// sub alone. The error is of the embedded CRDs only.
func Render(sub *v1alpha1.Submariner) ([]client.Object, error) {
	defs, err := crds.All()
	if err != nil {
		return nil, err
	}
	out := []client.Object{namespace()}
	for _, def := range defs {
		def.Labels = merged(def.Labels, ours(""))
		out = append(out, def)
	}
	out = append(out, account(GatewayName, gatewayRules())...)
	out = append(out, account(RouteAgentName, routeAgentRules())...)
	return append(out, submariner(sub), routeAgent(sub), gateway(sub)), nil
}

// namespace lets pods use the network of their node.
func namespace() *corev1.Namespace {
	labels := ours("")
	labels["pod-security.kubernetes.io/enforce"] = "privileged"
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace, Labels: labels}}
}

// submariner returns sub as it is stored: with the finalizer that keeps it until
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

// merged returns the entries of all maps, later ones winning.
func merged(maps ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range maps {
		for k, v := range m {
			out[k] = v
		}
	}
	return out
}
