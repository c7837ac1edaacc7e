package broker

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker/trust"
	"subctl/globalnet"
	"subctl/internal/kube"
)

// InviteCluster returns a join file for one cluster, within bounds, which lack only the key, the
// serial and the expiry. i.Administrator signs the invitation. The token in the file is of a
// service account of its own, which can become that member only, in the clustersets of the
// bounds. Earlier files for the cluster can no longer be used.
func InviteCluster(
	ctx context.Context,
	c client.Client,
	b *v1alpha1.Broker,
	i Invitation,
	bounds trust.Invitation,
	now time.Time,
) (*JoinFile, error) {
	sets, err := CheckInvitation(ctx, c, b, i.Global, bounds, now)
	if err != nil {
		return nil, err
	}
	f, err := replaceInvitation(ctx, c, b, i, bounds, sets, now)
	if err != nil {
		if ctx.Err() != nil {
			err = errors.New("interrupted") // instead of every request that this has ended
		}
		return nil, fmt.Errorf("%w: earlier join files for cluster %s may be void: run the same command again", err,
			bounds.Cluster)
	}
	return f, nil
}

// CheckInvitation returns why InviteCluster would refuse an invitation with a request for a global
// network, which may be nil; or else the clustersets of the broker.
func CheckInvitation(
	ctx context.Context, c client.Client, b *v1alpha1.Broker, global *globalnet.NetworkRequest,
	bounds trust.Invitation, now time.Time,
) ([]string, error) {
	if err := submarinerv1.CheckClusterID(bounds.Cluster); err != nil {
		return nil, err
	}
	sets, err := SetNames(ctx, c, b.Namespace)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, set := range bounds.Sets {
		if !slices.Contains(sets, set) {
			errs = append(errs, NoSuchSet(set, sets))
		}
	}
	return sets, errors.Join(append(errs, checkInvitedNetwork(ctx, c, b, global, now))...)
}

// replaceInvitation is InviteCluster, for clustersets that the broker has.
func replaceInvitation(
	ctx context.Context,
	c client.Client,
	b *v1alpha1.Broker,
	i Invitation,
	bounds trust.Invitation,
	sets []string,
	now time.Time,
) (*JoinFile, error) {
	if err := voidInvitation(ctx, c, b.Namespace, sets, bounds.Cluster); err != nil {
		return nil, err
	}
	annotations, isMember, err := accountAnnotations(ctx, c, b.Namespace, bounds.Cluster)
	if err != nil {
		return nil, err
	}
	if !isMember {
		// An earlier cluster with this ID may have deleted no more than its account. Rights are
		// bound to the name of the account, so the new cluster would have the rights of the earlier
		// one in all its clustersets.
		if err := removeRights(ctx, c, b.Namespace, sets, bounds.Cluster); err != nil {
			return nil, err
		}
	}
	clusters, err := clustersOf(ctx, c, b.Namespace, sets, bounds.Cluster)
	if err != nil {
		return nil, err
	}
	serial := max(now.UnixMilli(),
		lastWord(bounds.Cluster, i.Administrator.Public(), append(annotationsOf(clusters), annotations)...)+1)
	account := InviteeName(bounds.Cluster)
	objects := []client.Object{
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account, Namespace: b.Namespace}},
		identityRole(b.Namespace, bounds.Cluster), identityBinding(b.Namespace, account, account),
	}
	for _, set := range bounds.Sets {
		objects = append(objects, joinerBinding(NamespaceIn(b.Namespace, set), b.Namespace, account))
	}
	for _, obj := range objects {
		if err := kube.Apply(ctx, c, kube.FieldOwner, obj); err != nil {
			return nil, err
		}
	}
	if bounds.Global, err = reserveInvited(ctx, c, b, i, account, now); err != nil {
		return nil, err
	}
	f, err := inviteAs(ctx, c, b, i, account)
	if err != nil {
		return nil, err
	}
	if f.SigningKey, err = trust.NewKey(); err != nil {
		return nil, err
	}
	f.Administrator = i.Administrator.Public()
	bounds.Key = f.SigningKey.Public()
	bounds.Serial = serial
	bounds.Expires = serial + i.TTL.Milliseconds()
	if f.Invitation, err = i.Administrator.SignInvitation(bounds); err != nil {
		return nil, err
	}
	if _, err := f.Invited(); err != nil {
		return nil, err
	}
	return f, f.check()
}

// checkInvitedNetwork returns an error if the global network cannot be reserved that is requested
// for an invited cluster.
func checkInvitedNetwork(
	ctx context.Context,
	c client.Client,
	b *v1alpha1.Broker,
	r *globalnet.NetworkRequest,
	now time.Time,
) error {
	info, err := GlobalnetInfo(b)
	if err != nil || r == nil || !info.Enabled {
		return err
	}
	record, err := GlobalNetworks(ctx, c, b.Namespace, now)
	if err != nil {
		return err
	}
	n, err := info.Choose(*r, record)
	has := record.Find(r.Cluster)
	if err == nil && len(has.Networks) > 0 && has.Expires == 0 && has.Networks[0] != n {
		return fmt.Errorf(
			"cluster %s is a member with the global network %v, not %v: it can only change it with the file that deploy-broker wrote, or after subctl uninstall",
			r.Cluster, has.Networks[0], n)
	}
	return err
}

// reserveInvited reserves the global network of an invited cluster; the zero Prefix if it gets
// none.
func reserveInvited(
	ctx context.Context,
	c client.Client,
	b *v1alpha1.Broker,
	i Invitation,
	account string,
	now time.Time,
) (netip.Prefix, error) {
	info, err := GlobalnetInfo(b)
	if err != nil || i.Global == nil || !info.Enabled {
		return netip.Prefix{}, err
	}
	sa := &corev1.ServiceAccount{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: b.Namespace, Name: account}, sa); err != nil {
		return netip.Prefix{}, fmt.Errorf("reading the identity of the invitation: %w", err)
	}
	n, err := ReserveNetwork(ctx, c, b.Namespace, info,
		NetworkRequest{NetworkRequest: *i.Global, Account: sa.UID, Expires: now.Add(i.TTL).UnixMilli()}, now)
	if err != nil {
		return netip.Prefix{}, err
	}
	return n, kube.Apply(ctx, c, kube.FieldOwner, identityRole(b.Namespace, i.Global.Cluster, n.String()))
}

// IsMember reports whether a cluster has an identity on the broker with the base namespace ns.
func IsMember(ctx context.Context, c client.Client, ns, clusterID string) (bool, error) {
	return hasAccount(ctx, c, ns, MemberName(clusterID))
}

// hasAccount reports whether a service account exists.
func hasAccount(ctx context.Context, c client.Client, ns, name string) (bool, error) {
	found, err := kube.Optional(ctx, c, &corev1.ServiceAccount{}, client.ObjectKey{Namespace: ns, Name: name})
	return found != nil, err
}

// Uninvite withdraws the invitation of a cluster: the tokens of its join files end, and the global
// network that is reserved for it is free. A member keeps its own identity, and stays connected.
// Uninvite reports whether there was an invitation.
func Uninvite(ctx context.Context, c client.Client, ns, clusterID string) (was bool, err error) {
	if was, err = hasAccount(ctx, c, ns, InviteeName(clusterID)); err != nil {
		return false, err
	}
	sets, err := SetNames(ctx, c, ns)
	if err != nil {
		return was, err
	}
	return was, voidInvitation(ctx, c, ns, sets, clusterID) // also after a withdrawal that was interrupted
}

// voidInvitation makes the tokens of the join files for one cluster void. It is no error if there
// are none.
func voidInvitation(ctx context.Context, c client.Client, ns string, sets []string, clusterID string) error {
	account := InviteeName(clusterID)
	var objects []client.Object
	for _, set := range sets {
		objects = append(objects, joinerBinding(NamespaceIn(ns, set), ns, account))
	}
	objects = append(objects, identityBinding(ns, account, account), identityRole(ns, clusterID),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account, Namespace: ns}})
	return kube.ForEach(objects, func(_ int, obj client.Object) error {
		if err := client.IgnoreNotFound(c.Delete(ctx, obj)); err != nil {
			return fmt.Errorf("making earlier join files for cluster %s void: %w", clusterID, err)
		}
		return nil
	})
}

// VoidJoinFiles makes the tokens of all general join files void: it replaces the service account
// that they are of.
func VoidJoinFiles(ctx context.Context, c client.Client, ns string) error {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: JoinerName, Namespace: ns}}
	if err := client.IgnoreNotFound(c.Delete(ctx, account)); err != nil {
		return fmt.Errorf("making the join files void: %w", err)
	}
	return kube.Apply(ctx, c, kube.FieldOwner,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: JoinerName, Namespace: ns}})
}
