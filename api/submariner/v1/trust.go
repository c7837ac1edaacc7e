package v1

// Annotations that prove who made an object: see package trust. On the broker and on the
// copies in other clusters they are the same.
const (
	// SignatureAnnotation is on every object that clusters exchange: the object as its cluster
	// published it, signed with the key of that cluster, or with the administrator's key if the
	// object was made on the broker.
	SignatureAnnotation = "submariner.io/signature"
	// GrantAnnotation is on Clusters. It states what the cluster may be, signed by the
	// administrator, and discloses the clusterset in which the Cluster is published: see
	// trust.Published. On the service account of a cluster, it is the grant that the administrator
	// has renewed, with all clustersets. On a Submariner, it is the grant that join stored in the
	// cluster's Secret, for people who may not read Secrets.
	GrantAnnotation = "submariner.io/grant"
	// RevocationAnnotation is on the Cluster that takes the place of a revoked cluster's on the
	// broker. It makes the grants of that cluster void, everywhere or in one clusterset, signed by
	// the administrator.
	RevocationAnnotation = "submariner.io/revocation"
	// LeavingAnnotation is on the Cluster that takes the place of the Cluster of a cluster that has
	// left. It makes the grants void that the cluster had, signed by the cluster itself.
	LeavingAnnotation = "submariner.io/leaving"
)

// ChangedAnnotation is on the service account of a cluster that is in many clustersets. It has the
// clusterset in which the administrator has changed members last, and when: "hub-a 1700000000000",
// in milliseconds since
// 1970. It is a hint to read that clusterset at once.
const ChangedAnnotation = "submariner.io/changed-clusterset"
