package broker

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker/exchange"
	"subctl/broker/trust"
	"subctl/internal/kube"
)

// DefaultPolicy returns the policy that connects, with driver, the pairs of clusters that no
// other policy matches.
func DefaultPolicy(ns, driver string) *v1alpha1.CablePolicies {
	return &v1alpha1.CablePolicies{
		ObjectMeta:         metav1.ObjectMeta{Name: v1alpha1.DefaultCablePolicy, Namespace: ns},
		ConnectionPolicies: []v1alpha1.CablePolicySpec{{CableDriver: driver}},
	}
}

// DefaultDriver returns the driver of the broker's policy "default" in namespace ns, or "" if there
// is no such policy, and whether the policy is signed with the administrator's key. Policies of
// members do not count, whatever their names are. It is an error if the policy differs from what
// deploy-broker creates: somebody else has changed it.
func DefaultDriver(
	ctx context.Context,
	c client.Client,
	ns string,
	administrator trust.PublicKey,
) (driver string, signed bool, err error) {
	list := &v1alpha1.CablePoliciesList{}
	if err := c.List(ctx, list, client.InNamespace(ns)); err != nil && !kube.NotThere(err) {
		return "", false, fmt.Errorf("reading the cable policies of the broker: %w", err)
	}
	policies := exchange.InClusters(list.Items)
	i := slices.IndexFunc(policies, func(p v1alpha1.CablePolicies) bool {
		return p.Name == v1alpha1.DefaultCablePolicy && !submarinerv1.IsCopy(&p)
	})
	if i < 0 {
		return "", false, nil
	}
	p := &policies[i]
	if len(p.ConnectionPolicies) != 1 ||
		!equality.Semantic.DeepEqual(p.ConnectionPolicies[0],
			v1alpha1.CablePolicySpec{CableDriver: p.ConnectionPolicies[0].CableDriver}) {
		return "", false, fmt.Errorf(
			"the cable policy %s was changed since the broker was deployed: change it with subctl cable-policy add --name %s, or leave --cable-driver out",
			p.Name, p.Name)
	}
	s, err := exchange.Kinds().Verify(p, administrator)
	return p.ConnectionPolicies[0].CableDriver, err == nil && s.Set == submarinerv1.DefaultClusterSet, nil
}
