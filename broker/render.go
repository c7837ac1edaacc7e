package broker

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/api/crds"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker/exchange"
	"subctl/broker/trust"
	"subctl/globalnet"
	"subctl/internal/kube"
)

// Options specify a broker.
type Options struct {
	// Namespace is the namespace of the clusterset "default", the base namespace.
	Namespace string
	// Sets are the clustersets besides "default".
	Sets []string
	// Components are the components that clusters install, without service discovery.
	Components []string
	// ServiceDiscovery specifies whether clusters have service discovery, if their join does not
	// specify it; nil: they have.
	ServiceDiscovery *bool
	// CableDriver is the driver of clusters that specify none.
	CableDriver string
	// DefaultPolicy is the driver of the cable policy "default". If it is empty, that policy
	// is not changed.
	DefaultPolicy string
	// Globalnet is the range of global addresses; it is zero without globalnet.
	Globalnet globalnet.Info
	// PSKFingerprint is the Fingerprint of the pre-shared key.
	PSKFingerprint string
	// Administrator is the administrator's key, which signs the policy "default". The broker
	// gets its public half. Sequence is the sequence number of the signature: the time, in
	// milliseconds since 1970. Without the key, neither is rendered: see deploy-broker --dry-run.
	Administrator trust.Key
	Sequence      int64
	// PoliciesFrom specifies whose cable policies apply.
	PoliciesFrom v1alpha1.PoliciesFrom
	// Kinds are the kinds that clusters exchange; nil: exchange.KindsFrom(PoliciesFrom).
	Kinds exchange.Table
}

// Render returns all objects of a broker, in an order in which they can be applied. They
// hold no secret.
func Render(o Options) ([]client.Object, error) {
	if o.Kinds == nil {
		o.Kinds = exchange.KindsFrom(o.PoliciesFrom)
	}
	definitions, err := crds.Broker()
	if err != nil {
		return nil, err
	}
	var out []client.Object
	for _, crd := range definitions {
		out = append(out, crd)
	}
	for _, role := range crds.UserRoles() {
		out = append(out, role)
	}
	// The policies come before the first right to write.
	out = append(out, memberPolicy(o.Namespace, o.Kinds)...)
	out = append(out, joinerPolicy(o.Namespace, o.Kinds)...)
	out = append(out, labelPolicy(o.Namespace, o.Kinds)...)
	out = append(out, globalnetPolicy(o.Namespace, o.Globalnet.Range, o.Kinds)...)
	out = append(out, clusterSet(o, submarinerv1.DefaultClusterSet)...)
	for _, set := range o.Sets {
		out = append(out, clusterSet(o, set)...)
	}
	info, err := globalnetInfo(o)
	if err != nil {
		return nil, err
	}
	if o.DefaultPolicy != "" {
		p := DefaultPolicy(o.Namespace, o.DefaultPolicy)
		if !o.Administrator.IsZero() {
			if err := exchange.Kinds().Sign(p, o.Administrator, submarinerv1.DefaultClusterSet,
				o.Sequence); err != nil {
				return nil, err
			}
		}
		out = append(out, p)
	}
	out = append(out, info, brokerObject(o))
	// Last: until a new quota is in force, no object that it counts can be created.
	for _, set := range append([]string{submarinerv1.DefaultClusterSet}, o.Sets...) {
		out = append(out, quota(NamespaceIn(o.Namespace, set), o.Namespace, o.Kinds))
	}
	return out, nil
}

// clusterSet returns the namespace of a clusterset and the rights in it. Service accounts
// are in the base namespace only, as a cluster has one identity.
func clusterSet(o Options, set string) []client.Object {
	ns := NamespaceIn(o.Namespace, set)
	out := []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: ns, Labels: map[string]string{submarinerv1.ClusterSetLabel: set},
	}}}
	if ns == o.Namespace {
		out = append(out, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: JoinerName, Namespace: ns}},
			identityRole(ns, ""), identityBinding(ns, JoinerName, IdentityRoleName))
	}
	return append(out, memberRole(ns, o.Kinds), joinerRole(ns, o.Namespace, o.Kinds),
		joinerBinding(ns, o.Namespace, JoinerName))
}

func brokerObject(o Options) client.Object {
	b := &v1alpha1.Broker{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.BrokerName, Namespace: o.Namespace},
		Spec: v1alpha1.BrokerSpec{
			Components: slices.Sorted(slices.Values(o.Components)), ServiceDiscoveryEnabled: o.ServiceDiscovery,
			CableDriver: o.CableDriver, PoliciesFrom: o.PoliciesFrom,
		},
	}
	for name, value := range map[string]string{
		PSKFingerprintAnnotation: o.PSKFingerprint,
		AdministratorAnnotation:  o.Administrator.Public().String(),
	} {
		if value != "" {
			metav1.SetMetaDataAnnotation(&b.ObjectMeta, name, value)
		}
	}
	if o.Globalnet.Enabled {
		b.Spec.GlobalnetEnabled = true
		b.Spec.GlobalnetCIDRRange = o.Globalnet.Range.String()
		b.Spec.DefaultGlobalnetClusterSize = o.Globalnet.ClusterSize
	}
	return b
}

// globalnetInfo returns the ConfigMap in which upstream records global networks. The key
// with the networks of clusters is written once: see applyGlobalnetInfo.
func globalnetInfo(o Options) (client.Object, error) {
	data := map[string]string{globalnet.EnabledKey: fmt.Sprint(o.Globalnet.Enabled), globalnet.ClusterInfoKey: "[]"}
	if o.Globalnet.Enabled {
		quoted, err := json.Marshal(o.Globalnet.Range.String())
		if err != nil {
			return nil, err
		}
		maps.Copy(data, map[string]string{
			globalnet.RangeKey:       string(quoted),
			globalnet.ClusterSizeKey: fmt.Sprint(o.Globalnet.ClusterSize),
		})
	}
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: globalnet.ConfigMapName, Namespace: o.Namespace,
			Labels: map[string]string{"component": "submariner-globalnet"},
		},
		Data: data,
	}, nil
}

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
