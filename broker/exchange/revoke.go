package exchange

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	submarinerv1 "subctl/api/submariner/v1"
)

// Revoked returns the Cluster that takes the place of a revoked cluster's in the broker's
// namespace of a clusterset. It carries the revocation, which is the result of
// trust.Key.SignRevocation, and is not copied. The members remember the revocation, whatever
// becomes of the object. If the cluster joins again, its own Cluster replaces it.
func Revoked(namespace, id, revocation string) *submarinerv1.Cluster {
	return &submarinerv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{
			Name: id, Namespace: namespace, Labels: map[string]string{submarinerv1.ClusterIDLabel: id},
			Annotations: map[string]string{submarinerv1.RevocationAnnotation: revocation},
		},
		Spec: submarinerv1.ClusterSpec{ClusterID: id, ServiceCIDR: []string{}, ClusterCIDR: []string{}, GlobalCIDR: []string{}},
	}
}

// IsRevoked reports whether a Cluster on the broker is the result of Revoked: the cluster is no
// member.
func IsRevoked(c *submarinerv1.Cluster) bool {
	return c.Annotations[submarinerv1.RevocationAnnotation] != ""
}
