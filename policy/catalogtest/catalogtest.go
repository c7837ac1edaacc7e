// Package catalogtest makes the clusters and policies of tests of catalogs.
package catalogtest

import (
	"encoding/base64"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/policy"
	"subctl/policy/catalog"
)

// All are the drivers that clusters of tests offer.
const All = "vxlan,wireguard,ipsec"

// Add adds a cluster to objects, and a gateway that offers drivers if there are any. labels are
// "k=v,k=v"; maker is who says so, empty for the cluster's own.
func Add(o *catalog.Objects, maker, id, labels, offers string, change ...func(*submarinerv1.EndpointSpec)) {
	key := make([]byte, 32)
	copy(key, id)
	text := base64.StdEncoding.EncodeToString(key)
	c := submarinerv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{
			Name:        id,
			Labels:      submarinerv1.ParseLabels(labels),
			Annotations: map[string]string{submarinerv1.ClusterSetsAnnotation: submarinerv1.DefaultClusterSet},
		},
		Spec: submarinerv1.ClusterSpec{ClusterID: id, PublicKey: text},
	}
	e := submarinerv1.Endpoint{Spec: submarinerv1.EndpointSpec{
		ClusterID:     id,
		CableName:     "submariner-cable-" + id,
		Hostname:      "gw",
		PrivateIP:     "172.18.0.9",
		Backend:       "vxlan",
		Subnets:       []string{"10.1.0.0/16"},
		BackendConfig: map[string]string{submarinerv1.BackendDrivers: offers, "publicKey": text},
	}}
	if maker != "" {
		c.Labels[submarinerv1.ClusterIDLabel] = maker
		e.Labels = map[string]string{submarinerv1.ClusterIDLabel: maker}
	}
	o.Clusters = append(o.Clusters, c)
	for _, f := range change {
		f(&e.Spec)
	}
	if offers != "" {
		o.Endpoints = append(o.Endpoints, e)
	}
}

// Rules are those of a policy, "left | right | driver" each, with settings after another
// bar.
func Rules(texts ...string) (out []v1alpha1.CablePolicySpec) {
	for _, text := range texts {
		parts := strings.Split(text, " | ")
		left, _ := policy.ParseSelector(parts[0])
		right, _ := policy.ParseSelector(parts[1])
		r := v1alpha1.CablePolicySpec{LeftClusterSelector: left, RightClusterSelector: right, CableDriver: parts[2]}
		if len(parts) > 3 {
			r.CableOptions = &v1alpha1.CableOptions{Data: map[string]string{v1alpha1.CableCustomConfig: parts[3]}}
		}
		out = append(out, r)
	}
	return out
}

// Made is a policy made here, in clusterset default.
func Made(name string, texts ...string) *v1alpha1.CablePolicies {
	return &v1alpha1.CablePolicies{
		ObjectMeta: metav1.ObjectMeta{
			Name:      name,
			Namespace: submarinerv1.OperatorNamespace,
		}, ConnectionPolicies: Rules(texts...),
		Status: v1alpha1.CablePoliciesStatus{
			ClusterSets: []string{"default"},
			Conditions:  []metav1.Condition{{Type: v1alpha1.ConditionShared, Status: metav1.ConditionTrue}},
		},
	}
}

// Copied is the copy of a policy that another cluster made.
func Copied(maker string, p *v1alpha1.CablePolicies) *v1alpha1.CablePolicies {
	p.Labels = map[string]string{submarinerv1.ClusterIDLabel: maker, submarinerv1.ClusterSetLabel: "default"}
	p.Status = v1alpha1.CablePoliciesStatus{}
	return p
}

// Member is the catalog of west, in site one, which does not offer IPsec. Beside it there are east,
// in site two, and cloud, in site cloud.
func Member(policies ...*v1alpha1.CablePolicies) *catalog.Catalog {
	var o catalog.Objects
	Add(&o, "", "west", "site=one", "vxlan,wireguard")
	Add(&o, "east", "east", "site=two", All)
	Add(&o, "cloud", "cloud", "site=cloud", All)
	for _, p := range policies {
		o.Policies = append(o.Policies, *p)
	}
	return catalog.OfMember(&v1alpha1.Submariner{Spec: v1alpha1.SubmarinerSpec{ClusterID: "west"}}, o)
}
