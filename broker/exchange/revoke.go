package exchange

import (
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker/trust"
)

// This file is about the Clusters that take the place of the Cluster of a removed cluster in the
// broker's namespace of a clusterset. They are empty, except for the proof that the cluster was
// revoked, everywhere or in this clusterset, or has left, and are not copied. The members remember
// that, whatever becomes of the object. If the cluster joins again, its own Cluster replaces it.

// Revoked returns the Cluster of a cluster that was revoked, or removed from a clusterset.
// revocation is the result of trust.Key.SignRevocation.
func Revoked(namespace, id, revocation string) *submarinerv1.Cluster {
	return removed(namespace, id, submarinerv1.RevocationAnnotation, revocation)
}

// Left returns the Cluster of a cluster that has left. leaving is the result of
// trust.Key.SignLeaving.
func Left(namespace, id, leaving string) *submarinerv1.Cluster {
	return removed(namespace, id, submarinerv1.LeavingAnnotation, leaving)
}

func removed(namespace, id, annotation, proof string) *submarinerv1.Cluster {
	return &submarinerv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{
			Name: id, Namespace: namespace, Labels: map[string]string{submarinerv1.ClusterIDLabel: id},
			Annotations: map[string]string{annotation: proof},
		},
		Spec: submarinerv1.ClusterSpec{
			ClusterID:   id,
			ServiceCIDR: []string{},
			ClusterCIDR: []string{},
			GlobalCIDR:  []string{},
		},
	}
}

// Covers reports whether a Cluster on the broker can stand for proof, which is a result of Revoked:
// it is such a result itself, with a valid revocation that makes at least the same grants void, and
// the broker does not delete it with an owner. administrator verifies both.
func Covers(c, proof *submarinerv1.Cluster, administrator trust.PublicKey) bool {
	token := c.Annotations[submarinerv1.RevocationAnnotation]
	has, err := administrator.Revocation(token)
	if err != nil {
		return false
	}
	needed, err := administrator.Revocation(proof.Annotations[submarinerv1.RevocationAnnotation])
	if err != nil || !has.Covers(needed) || len(c.OwnerReferences) > 0 || !c.DeletionTimestamp.IsZero() {
		return false
	}
	plain := Revoked(proof.Namespace, proof.Name, token)
	return equality.Semantic.DeepEqual([]any{plain.Labels, plain.Annotations, plain.Spec},
		[]any{c.Labels, c.Annotations, c.Spec})
}

// IsRemoved reports whether a Cluster on the broker is the result of Revoked or Left: the cluster
// is no member of the clusterset.
func IsRemoved(c *submarinerv1.Cluster) bool { return isRemoved(c) }

func isRemoved(o client.Object) bool {
	a := o.GetAnnotations()
	return a[submarinerv1.SignatureAnnotation] == "" &&
		(a[submarinerv1.RevocationAnnotation] != "" || a[submarinerv1.LeavingAnnotation] != "")
}
