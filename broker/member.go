package broker

import (
	"context"
	"errors"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Credentials are what a member talks to the broker with.
type Credentials struct {
	Token Secret
	CA    []byte // PEM
}

// AddMember claims clusterID on the broker whose base namespace is ns for the
// cluster with the given UID (that of its kube-system namespace) and returns the
// member's credentials. It may be repeated by the same cluster; a claim of an ID
// that another cluster holds is a *TakenError.
func AddMember(ctx context.Context, c client.Client, ns, clusterID, clusterUID string) (*Credentials, error) {
	return nil, errors.ErrUnsupported
}

// RemoveMember deletes everything of clusterID from the broker, the member's
// identity last. namespaces are those of the clustersets it is in, the base
// namespace first. c may be the member itself.
func RemoveMember(ctx context.Context, c client.Client, namespaces []string, clusterID string) error {
	return errors.ErrUnsupported
}

// TakenError says that another cluster holds a cluster ID.
type TakenError struct {
	ClusterID string
	Namespace string
}

func (e *TakenError) Error() string {
	return "cluster ID \"" + e.ClusterID + "\" is taken by another cluster"
}
