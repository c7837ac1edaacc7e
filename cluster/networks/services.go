package networks

import (
	"context"
	"net/netip"
	"regexp"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// fromServiceCIDRs reads the ServiceCIDR API of Kubernetes 1.33 and later. All ranges count,
// including ranges that were added later.
func fromServiceCIDRs(ctx context.Context, c client.Reader) (Found, error) {
	list := &networkingv1.ServiceCIDRList{}
	if err := c.List(ctx, list); err != nil {
		return Found{}, err
	}
	var out []netip.Prefix
	for _, item := range list.Items {
		for _, s := range item.Spec.CIDRs {
			out = append(out, Parse(s)...)
		}
	}
	return Found{out, "the ServiceCIDR API"}, nil
}

func fromAPIServer(ctx context.Context, c client.Reader) (Found, error) {
	return fromPodFlag(ctx, c, "component", "kube-apiserver", "--service-cluster-ip-range")
}

// refusal matches the error of an API server without the ServiceCIDR API about a Service
// address outside its range.
var refusal = regexp.MustCompile(`range of valid IPs is ([0-9a-fA-F.:/]+)`)

// fromRefusal requests a Service with an address that is in no cluster's range, and reads
// the range from the error of the API server. The request is a dry run, which creates
// nothing.
func fromRefusal(w client.Writer) source {
	return func(ctx context.Context, _ client.Reader) (Found, error) {
		svc := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: "subctl-asks-for-the-range", Namespace: metav1.NamespaceDefault},
			Spec:       corev1.ServiceSpec{ClusterIP: "1.1.1.1", Ports: []corev1.ServicePort{{Port: 443}}},
		}
		err := w.Create(ctx, svc, client.DryRunAll)
		if err == nil {
			return Found{}, nil
		}
		if m := refusal.FindStringSubmatch(err.Error()); m != nil {
			return Found{Parse(m[1]), "the API server's refusal of another address"}, nil
		}
		return Found{}, nil
	}
}
