package broker

import (
	"crypto/rand"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker/exchange"
)

// Names on the broker. They are upstream's, so that its tools find them.
const (
	// JoinerName is the name of the service account whose token is in join files.
	JoinerName = "submariner-k8s-broker-admin"
	// MemberRoleName is the name of the Role of all members of a clusterset.
	MemberRoleName = "submariner-k8s-broker-cluster"
	// IdentityRoleName is the name of the Role with which general join files give clusters
	// identities.
	IdentityRoleName = "submariner-k8s-broker-identities"
	// identityBindingSuffix follows the name of an account in the name of the RoleBinding for
	// identities. No cluster ID contains a '.'.
	identityBindingSuffix = ".identities"
	// memberPrefix is the prefix of the names of members' service accounts.
	memberPrefix = "cluster-"
	// inviteePrefix is the prefix of the names of the service accounts whose tokens are in join
	// files for one cluster.
	inviteePrefix = "invitee-"
)

// Annotations of our own on the broker.
const (
	// ClusterUIDAnnotation of a member's service account is the UID of the kube-system
	// namespace of the cluster that claimed the ID.
	ClusterUIDAnnotation = "submariner.io/cluster-uid"
	// PSKFingerprintAnnotation of the Broker is the Fingerprint of the pre-shared key.
	PSKFingerprintAnnotation = "submariner.io/psk-fingerprint"
	// AdministratorAnnotation of the Broker is the administrator's public key. It is for people
	// and for mistakes with files: clusters verify with the key that they pinned when they
	// joined.
	AdministratorAnnotation = "submariner.io/administrator-key"
)

// NamespaceIn returns the broker's namespace of a clusterset, where base is the
// namespace of the clusterset "default".
func NamespaceIn(base, set string) string {
	if set == submarinerv1.DefaultClusterSet {
		return base
	}
	return base + "-" + set
}

// setIn returns a clusterset and its namespace.
func setIn(base, set string) exchange.Set {
	return exchange.Set{Name: set, Namespace: NamespaceIn(base, set)}
}

// MemberName returns the name of a member's service account, and of the Role that lets the
// member delete that account.
func MemberName(clusterID string) string { return memberPrefix + clusterID }

// InviteeName returns the name of the service account whose token is in the join file for one
// cluster.
func InviteeName(clusterID string) string { return inviteePrefix + clusterID }

// memberBindingName returns the name of a member's RoleBinding, as upstream names it.
func memberBindingName(clusterID string) string {
	return MemberName(clusterID) + memberBindingSuffix
}

// memberBindingSuffix follows the name of the account in the name of a member's RoleBinding. No
// cluster ID ends so, or like the name of a token: see submarinerv1.ReservedIDs.
const memberBindingSuffix = "-" + MemberRoleName

// tokenName returns the name of a Secret with a token of a member, and of the Role and RoleBinding
// that let the holder of a join file read it. account is the service account of the file.
//
// The holder of a file for one cluster is the only one of all holders who may make and read the
// token of this name, so it needs only one name: it cannot store many Secrets, of which a quota is
// for all. The holders of general files share an account. Any of them may bind itself to a Role for
// a token by its name, so the name must not be guessable.
func tokenName(account, clusterID string) string {
	if account == InviteeName(clusterID) {
		return MemberName(clusterID) + invitedTokenSuffix
	}
	var random [16]byte
	rand.Read(random[:]) // never fails
	return fmt.Sprintf("%s-token-%x", MemberName(clusterID), random)
}

// invitedTokenSuffix follows the name of the account in the name of the token that the holder of a
// file for one cluster may make.
const invitedTokenSuffix = "-token-invited"

// CheckClusterSet returns an error if set cannot be the name of a clusterset.
func CheckClusterSet(set string) error {
	if errs := validation.IsDNS1123Label(NamespaceIn(submarinerv1.BrokerNamespace, set)); len(errs) > 0 || set == "" {
		return fmt.Errorf(
			"clusterset %.64q cannot name a namespace: use at most %d lower case letters, digits and '-', "+
				"with a letter or digit at both ends",
			set,
			63-len(submarinerv1.BrokerNamespace)-1,
		)
	}
	return nil
}
