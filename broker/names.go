package broker

import (
	"crypto/rand"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation"

	submarinerv1 "subctl/api/submariner/v1"
)

// Names on the broker (upstream's, so that its tools find them).
const (
	// JoinerName is the service account whose token a join file carries.
	JoinerName = "submariner-k8s-broker-admin"
	// MemberRoleName is the Role every member of a clusterset is bound to.
	MemberRoleName = "submariner-k8s-broker-cluster"
	// memberPrefix starts the name of every member's service account.
	memberPrefix = "cluster-"
)

// Annotations and labels of our own on the broker and on synced objects.
const (
	// ClusterUIDAnnotation is on a member's service account: the UID of the
	// kube-system namespace of the cluster that claimed the ID.
	ClusterUIDAnnotation = "submariner.io/cluster-uid"
	// PSKFingerprintAnnotation is on the Broker: Fingerprint of the pre-shared key.
	PSKFingerprintAnnotation = "submariner.io/psk-fingerprint"
)

// Namespace returns the broker's namespace of a clusterset on a broker with the
// default base namespace.
func Namespace(set string) string { return NamespaceIn(submarinerv1.BrokerNamespace, set) }

// NamespaceIn returns the broker's namespace of a clusterset, where base is the
// namespace of the clusterset "default".
func NamespaceIn(base, set string) string {
	if set == submarinerv1.DefaultClusterSet {
		return base
	}
	return base + "-" + set
}

// MemberName returns the name of a member's service account, and of the Role
// that lets it delete itself.
func MemberName(clusterID string) string { return memberPrefix + clusterID }

// memberBindingName is the name upstream gives a member's RoleBinding.
func memberBindingName(clusterID string) string {
	return MemberName(clusterID) + "-" + MemberRoleName
}

// newMemberTokenName names the Secret with a token of a member. Whoever has a
// join file may read Secrets whose name it knows: nobody can guess this one.
func newMemberTokenName(clusterID string) string {
	var random [16]byte
	rand.Read(random[:]) // never fails
	return fmt.Sprintf("%s-token-%x", MemberName(clusterID), random)
}

// CheckClusterSet says what is wrong with the name of a clusterset, if anything.
func CheckClusterSet(set string) error {
	if errs := validation.IsDNS1123Label(NamespaceIn(submarinerv1.BrokerNamespace, set)); len(errs) > 0 || set == "" {
		return fmt.Errorf("clusterset %q cannot name a namespace: use at most %d lower case letters, digits and '-', "+
			"with a letter or digit at both ends", set, 63-len(submarinerv1.BrokerNamespace)-1)
	}
	return nil
}
