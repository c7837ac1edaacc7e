package cmd

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/api/submariner/v1alpha1"
)

// Settings under which traffic fails, and networks that the cluster has got since it joined, are
// printed with what to do.
func TestShowNetworksWarns(t *testing.T) {
	system := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name}
	}
	show := func(discovered string) string {
		w := worlds()["well"]
		for _, o := range w["west"] {
			if sub, ok := o.(*v1alpha1.Submariner); ok {
				metav1.SetMetaDataAnnotation(&sub.ObjectMeta, v1alpha1.DiscoveredAnnotation, discovered)
			}
		}
		w["west"] = append(w["west"],
			&appsv1.DaemonSet{ObjectMeta: system("cilium")},
			&corev1.ConfigMap{
				ObjectMeta: system("cilium-config"), Data: map[string]string{"kube-proxy-replacement": "true"},
			},
			&networkingv1.ServiceCIDR{
				ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"},
				Spec:       networkingv1.ServiceCIDRSpec{CIDRs: []string{"100.64.0.0/16"}},
			},
			&networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "extra"}, Spec: networkingv1.ServiceCIDRSpec{
				CIDRs: []string{"10.203.0.0/24"},
			}},
		)
		return runIn(t, w, []string{"west"}, "show", "networks").stdout
	}
	out := show("clusterCIDR,serviceCIDR")
	require.Contains(t, out, `bpf-lb-external-clusterip: "true"`)
	require.Contains(t, out, "the Service network 10.203.0.0/24 (the ServiceCIDR API) is not known to other "+
		"clusters: run \"subctl join JOIN-FILE\" with the join file")
	require.Contains(t, show(""), `run "subctl join JOIN-FILE --servicecidr 100.64.0.0/16,10.203.0.0/24"`)
}
