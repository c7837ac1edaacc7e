package cmd

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
)

// member returns the Cluster and the Endpoint of a cluster in a namespace; copies have the
// label with the ID.
func member(namespace, id, ip, drivers string, labels map[string]string) []client.Object {
	meta := metav1.ObjectMeta{
		Name:      id,
		Namespace: namespace,
		Labels:    map[string]string{submarinerv1.ClusterIDLabel: id},
	}
	for k, v := range labels {
		meta.Labels[k] = v
	}
	c := &submarinerv1.Cluster{ObjectMeta: meta, Spec: submarinerv1.ClusterSpec{
		ClusterID:   id,
		ServiceCIDR: []string{"100.65.0.0/16"},
		ClusterCIDR: []string{"10.2.0.0/16", "10.3.0.0/16"},
		GlobalCIDR:  []string{},
	}}
	e := &submarinerv1.Endpoint{
		ObjectMeta: metav1.ObjectMeta{
			Name:      id + "-" + ip,
			Namespace: namespace,
			Labels:    map[string]string{submarinerv1.ClusterIDLabel: id},
		},
	}
	e.Spec = endpoint(id, "gw-"+id[:1], ip)
	e.Spec.BackendConfig = map[string]string{submarinerv1.BackendDrivers: drivers}
	return []client.Object{c, e}
}

// knownClusters returns what the agents of cluster west hold: its own Cluster, two other
// clusters, and a Cluster that claims to be another.
func knownClusters() []client.Object {
	out := member(submarinerv1.OperatorNamespace, "west", "172.18.0.2", "vxlan,wireguard",
		map[string]string{"site": "edge", "tier": "gold"})
	for _, o := range out {
		o.SetLabels(map[string]string{"site": "edge", "tier": "gold"}) // not a copy
	}
	east := member(submarinerv1.OperatorNamespace, "east", "172.18.0.9", "vxlan,wireguard,ipsec",
		map[string]string{"site": "cloud"})
	east[0].SetAnnotations(map[string]string{submarinerv1.ClusterSetsAnnotation: "blue,default"})
	second := member(submarinerv1.OperatorNamespace, "east", "172.18.0.10", "vxlan", nil)[1].(*submarinerv1.Endpoint)
	second.Spec.Hostname = "gw-e2"
	liar := member(submarinerv1.OperatorNamespace, "south", "172.18.0.5", "vxlan", nil)[0]
	liar.SetLabels(map[string]string{submarinerv1.ClusterIDLabel: "north"})
	return append(append(out, east...), second, liar)
}

// brokerMembers returns what the broker of the clustersets default and blue holds.
func brokerMembers() []client.Object {
	out := []client.Object{
		&corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{
				Name:   submarinerv1.BrokerNamespace,
				Labels: map[string]string{submarinerv1.ClusterSetLabel: "default"},
			},
		},
		&corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{
				Name:   submarinerv1.BrokerNamespace + "-blue",
				Labels: map[string]string{submarinerv1.ClusterSetLabel: "blue"},
			},
		},
	}
	for _, ns := range []string{submarinerv1.BrokerNamespace, submarinerv1.BrokerNamespace + "-blue"} {
		out = append(out, member(ns, "east", "172.18.0.9", "vxlan,ipsec", map[string]string{"site": "cloud"})...)
	}
	return append(out, member(submarinerv1.BrokerNamespace+"-blue", "north", "172.18.0.7", "vxlan", nil)...)
}
