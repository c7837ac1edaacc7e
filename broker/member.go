package broker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/internal/kube"
	"subctl/internal/wake"
)

// Credentials are a member's credentials for the broker.
type Credentials struct {
	Token Secret
	// CA is the certificate authority of the broker's own certificate, in PEM. The join file
	// has it too, and may have another one for the broker's URL.
	CA []byte
	// ProxyUser is USER:PASSWORD for the proxy through which the gateways reach the broker; usually
	// empty.
	ProxyUser Secret
}

// memberTimeout bounds the wait for the broker's controllers and quota, which take well under a
// second for one cluster, and half a minute for a dozen that join at once.
const memberTimeout = 60 * time.Second

// EnsureMember claims clusterID on the broker whose base namespace is ns, and gives the
// cluster the rights of a member. clusterUID is the UID of the cluster's kube-system
// namespace. The same cluster may repeat the claim. If another cluster holds the ID, the
// error is a *TakenError. The result is the UID of the member's service account.
//
// The claim is the creation of the member's service account, in which only one cluster
// succeeds. The account owns everything else that the member has in the base namespace, so that
// deleting the account deletes everything there. For the other clustersets see placeRole.
func EnsureMember(
	ctx context.Context,
	c client.Client,
	ns, clusterID, clusterUID string,
	r Reservation,
) (types.UID, error) {
	ctx, cancel := withMemberTimeout(ctx)
	defer cancel()
	sa, err := ensure(ctx, c, ns, clusterID, clusterUID, r)
	if err != nil {
		return "", err
	}
	return sa.UID, nil
}

// AddMember is like EnsureMember, and returns new credentials of the member.
//
// With the credentials of a general join file, every call makes a new token, in a Secret whose name
// only the caller knows: everyone with such a file could find a name that can be found again. Older
// tokens are valid until the service account is deleted, so a member with a valid token (see
// Accepts) should keep it. With a file for one cluster there is one token, which later calls
// return.
func AddMember(
	ctx context.Context,
	c client.Client,
	ns, clusterID, clusterUID string,
	r Reservation,
) (*Credentials, error) {
	ctx, cancel := withMemberTimeout(ctx)
	defer cancel()
	sa, err := ensure(ctx, c, ns, clusterID, clusterUID, r)
	if err != nil {
		return nil, err
	}
	account, _, err := accountOf(ctx, c, ns)
	if err != nil {
		return nil, fmt.Errorf("asking the broker for the name of the user: %w", err)
	}
	token := memberToken(sa, tokenName(account, clusterID))
	if err := createOwned(ctx, c, token, sa.UID); err != nil {
		return nil, err
	}
	if err := letRead(ctx, c, sa, token.Name, account); err != nil {
		return nil, err
	}
	return waitForToken(ctx, c, client.ObjectKeyFromObject(token), clusterID)
}

func withMemberTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, memberTimeout,
		fmt.Errorf("the broker's controllers did nothing for %s", memberTimeout))
}

func ensure(
	ctx context.Context,
	c client.Client,
	ns, clusterID, clusterUID string,
	r Reservation,
) (*corev1.ServiceAccount, error) {
	if err := submarinerv1.CheckClusterID(clusterID); err != nil {
		return nil, err
	}
	if clusterUID == "" {
		return nil, errors.New("adding a member: the cluster's UID is empty")
	}
	sa, err := claim(ctx, c, ns, clusterID, clusterUID)
	if err != nil {
		return nil, err
	}
	if err := identify(ctx, c, sa, clusterID); err != nil {
		return nil, err
	}
	for _, set := range r.sets() {
		if err := r.enter(ctx, c, sa, set, clusterID, clusterUID); err != nil {
			return nil, err
		}
	}
	return sa, nil
}

// Accepts returns the UID of the service account to which the credentials of c belong, if the
// broker whose base namespace is ns accepts them as the credentials of member clusterID, and
// otherwise "". An API server accepts a token for some seconds after its service account was
// deleted: the credentials are good only if the UID is the one that EnsureMember returns.
func Accepts(ctx context.Context, c client.Client, ns, clusterID string) (types.UID, error) {
	account, uid, err := accountOf(ctx, c, ns)
	if apierrors.IsUnauthorized(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("asking the broker whether it knows this cluster: %w", err)
	}
	if account != MemberName(clusterID) {
		return "", nil
	}
	return uid, nil
}

// accountOf returns the name and the UID of the service account of namespace ns whose credentials c
// uses; "" if it is another user.
func accountOf(ctx context.Context, c client.Client, ns string) (string, types.UID, error) {
	review := &authenticationv1.SelfSubjectReview{}
	if err := c.Create(ctx, review); err != nil {
		return "", "", err
	}
	user := review.Status.UserInfo
	account, found := strings.CutPrefix(user.Username, "system:serviceaccount:"+ns+":")
	if !found {
		return "", "", nil
	}
	return account, types.UID(user.UID), nil
}

// letRead lets the service account of a join file read the token that it has made. Other users have
// the right already.
func letRead(ctx context.Context, c client.Client, sa *corev1.ServiceAccount, token, account string) error {
	if account == "" {
		return nil
	}
	role := tokenRole(sa.Namespace, token)
	role.ObjectMeta = ownedMeta(sa, token)
	binding := &rbacv1.RoleBinding{
		ObjectMeta: ownedMeta(sa, token),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: token},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: account, Namespace: sa.Namespace}},
	}
	for _, obj := range []client.Object{role, binding} {
		if err := createOwned(ctx, c, obj, sa.UID); err != nil {
			return err
		}
	}
	return nil
}

// claim creates the member's service account. It succeeds if the same cluster has claimed it
// before.
func claim(ctx context.Context, c client.Client, ns, clusterID, clusterUID string) (*corev1.ServiceAccount, error) {
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Name: MemberName(clusterID), Namespace: ns,
		Annotations: map[string]string{ClusterUIDAnnotation: clusterUID},
	}}
	err := kube.Settled(func() error { return c.Create(ctx, sa, client.FieldOwner(kube.FieldOwner)) })
	if err == nil {
		return sa, nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("claiming cluster ID %q on the broker: %w", clusterID, err)
	}
	if err := c.Get(ctx, client.ObjectKeyFromObject(sa), sa); err != nil {
		return nil, fmt.Errorf("reading which cluster has ID %q on the broker: %w", clusterID, err)
	}
	if sa.Annotations[ClusterUIDAnnotation] != clusterUID {
		return nil, &TakenError{ClusterID: clusterID, Namespace: ns, Since: sa.CreationTimestamp.Time}
	}
	return sa, nil
}

// memberToken returns a Secret, into which the broker's token controller writes a token.
func memberToken(sa *corev1.ServiceAccount, name string) *corev1.Secret {
	secret := &corev1.Secret{ObjectMeta: ownedMeta(sa, name), Type: corev1.SecretTypeServiceAccountToken}
	secret.Annotations = map[string]string{corev1.ServiceAccountNameKey: sa.Name, "kubernetes.io/created-by": "subctl"}
	return secret
}

// waitForToken waits until the token controller has made the member's credentials, and
// returns them. The API server may take a moment to know of the right to read them.
func waitForToken(ctx context.Context, c client.Client, key client.ObjectKey, clusterID string) (*Credentials, error) {
	secret := &corev1.Secret{}
	for {
		err := c.Get(ctx, key, secret)
		if err != nil && !apierrors.IsForbidden(err) {
			return nil, fmt.Errorf("reading the token of cluster %s on the broker: %w", clusterID, err)
		}
		token := secret.Data[corev1.ServiceAccountTokenKey]
		ca := secret.Data[corev1.ServiceAccountRootCAKey]
		if len(token) > 0 && len(ca) > 0 {
			return &Credentials{Token: token, CA: ca}, nil
		}
		if late := wake.After(ctx, 20*time.Millisecond); late != nil {
			return nil, fmt.Errorf("waiting for the token of cluster %s on the broker: %w", clusterID,
				errors.Join(late, err))
		}
	}
}

// TakenError means that another cluster holds a cluster ID.
type TakenError struct {
	ClusterID string
	Namespace string // on the broker
	Since     time.Time
}

func (e *TakenError) Error() string {
	return fmt.Sprintf("cluster ID %q is taken: another cluster joined with it at %s; choose another ID, or, "+
		"if that cluster is gone for good, let the administrator of the broker free it with: %s",
		e.ClusterID, e.Since.UTC().Format(time.RFC3339), RevokeCommand(e.Namespace, e.ClusterID))
}
