package uninstall

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/broker/exchange"
	"subctl/cluster"
	"subctl/internal/kube"
)

// leave removes the cluster from the broker, and then removes the finalizer of the
// Submariner object. The cluster's own shared objects, such as cable policies, are deleted
// first: the gateway still runs, and would copy them to the broker again.
func (u *Operation) leave(ctx context.Context, hub client.Client, sub *v1alpha1.Submariner) error {
	own, err := labels.NewRequirement(submarinerv1.ClusterIDLabel, selection.DoesNotExist, nil)
	if err != nil {
		return err
	}
	for _, k := range exchange.Kinds() {
		if k.Free == nil {
			continue
		}
		err := u.Cluster.DeleteAllOf(ctx, k.New(), client.InNamespace(cluster.Namespace),
			client.MatchingLabelsSelector{Selector: labels.NewSelector().Add(*own)})
		if err != nil && !kube.NotThere(err) {
			return fmt.Errorf("deleting the %s of this cluster: %w", k.Resource, err)
		}
	}
	if hub != nil {
		err := u.leaveBroker(ctx, hub, sub)
		switch {
		case err == nil || errors.Is(err, broker.ErrNotMember):
			u.Report.Done("cluster %q is removed from the broker", sub.Spec.ClusterID)
		case u.forced(Broker) && ctx.Err() == nil:
			u.Report.Warn("the broker keeps its objects of cluster %q: %v", sub.Spec.ClusterID, err)
		default:
			return err
		}
	}
	return u.free(ctx)
}

// leaveBroker publishes that the cluster has left, which makes its grant void, and removes the
// cluster from the broker. The order matters: the account of the cluster, which is removed last,
// publishes that.
func (u *Operation) leaveBroker(ctx context.Context, hub client.Client, sub *v1alpha1.Submariner) error {
	base := sub.Spec.BrokerK8sRemoteNamespace
	account := &corev1.ServiceAccount{}
	err := hub.Get(ctx, client.ObjectKey{Namespace: base, Name: broker.MemberName(sub.Spec.ClusterID)}, account)
	// without an account, or its rights, Leave reports why
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) {
		return fmt.Errorf("reading the newest grant of cluster %s from the broker: %w", sub.Spec.ClusterID, err)
	}
	leaving, trusted, sets, err := u.signLeaving(ctx, account.Annotations[submarinerv1.GrantAnnotation], sub)
	if err != nil {
		u.unrevoked(sub, err.Error(), "--force")
		return removeMember(ctx, hub, sub, sets, sets, trusted)
	}
	without, closed, err := broker.Leave(ctx, hub, base, sets, sub.Spec.ClusterID, leaving)
	if err != nil && !errors.Is(err, broker.ErrNotMember) {
		u.unrevoked(sub, err.Error())
		return err
	}
	for _, set := range closed {
		u.Report.Warn(
			"cluster %[1]q has no rights in clusterset %[2]s any more: if the clusterset exists, the administrator of the broker removes what is left there, with: subctl clusterset remove %[2]s %[1]s",
			sub.Spec.ClusterID, set)
	}
	open := slices.DeleteFunc(slices.Clone(sets), func(set string) bool { return slices.Contains(closed, set) })
	if err == nil && len(open) == 0 {
		u.unrevoked(sub, "it has no rights in any of its clustersets, unless it was revoked before", "--force")
	} else if len(without) > 0 || err != nil {
		u.unrevoked(sub, "the broker has no Cluster object of it in namespace "+strings.Join(without, ", "), "--force")
	} else {
		u.Report.Done("the grant of cluster %q is revoked", sub.Spec.ClusterID)
	}
	return removeMember(ctx, hub, sub, open, sets, trusted)
}

// removeMember removes the cluster from the broker, where it has rights: in the clustersets open of
// sets. If it was revoked a moment ago, the broker may still accept its token, and refuses
// everything: then the administrator has removed it.
func removeMember(
	ctx context.Context, hub client.Client, sub *v1alpha1.Submariner, open, sets []string, trusted cluster.Trust,
) error {
	base := sub.Spec.BrokerK8sRemoteNamespace
	id := sub.Spec.ClusterID
	err := broker.RemoveMember(ctx, hub, base, open, id, trusted.Administrator)
	if err == nil || len(sets) == 0 {
		return err
	}
	for _, set := range sets {
		key := client.ObjectKey{Namespace: broker.NamespaceIn(base, set), Name: id}
		refused := hub.Get(ctx, key, &submarinerv1.Cluster{})
		if !apierrors.IsForbidden(refused) && !apierrors.IsUnauthorized(refused) {
			return err
		}
	}
	return broker.ErrNotMember
}

// signLeaving returns the signed statement that the cluster has left, the keys of the cluster, and
// the clustersets of its newest grant. The keys are zero if they cannot be read. renewed is the
// grant that the broker has; the administrator may have renewed it since the cluster has joined,
// and no gateway may have taken it over yet. The statement makes the newest grant void. Rights that
// remained in one of its clustersets would pass to the next cluster with this ID. If there is no
// grant, signLeaving returns the clustersets that the cluster last knew.
func (u *Operation) signLeaving(
	ctx context.Context,
	renewed string,
	sub *v1alpha1.Submariner,
) (token string, t cluster.Trust, sets []string, err error) {
	id := sub.Spec.ClusterID
	own, err := kube.Optional(ctx, u.Cluster, &submarinerv1.Cluster{},
		client.ObjectKey{Namespace: cluster.Namespace, Name: id})
	if err != nil {
		return "", t, nil, err
	}
	sets = v1alpha1.ClusterSets(sub.Spec, own)
	stored := &corev1.Secret{}
	if err := u.Cluster.Get(ctx, client.ObjectKey{Namespace: cluster.Namespace, Name: cluster.TrustSecret},
		stored); err != nil {
		return "", t, sets, fmt.Errorf("reading the signing key: %w", err)
	}
	t, err = cluster.ReadTrust(stored.Data)
	if err != nil {
		return "", t, sets, err
	}
	memory, err := kube.Optional(ctx, u.Cluster, &corev1.ConfigMap{},
		client.ObjectKey{Namespace: cluster.Namespace, Name: exchange.MemoryName})
	if err != nil {
		return "", t, sets, err
	}
	newest := exchange.Identity{Key: t.Key, Grant: t.Grant, Administrator: t.Administrator}.Newest(memory, id)
	newest.Renew(id, renewed)
	if granted := newest.Sets(id); len(granted) > 0 {
		sets = granted
	}
	token, err = t.Key.SignLeaving(newest.Grant, time.Now().UnixMilli())
	return token, t, sets, err
}

// unrevoked warns that the grant of the cluster stays valid, and how an administrator revokes it.
func (u *Operation) unrevoked(sub *v1alpha1.Submariner, why string, flags ...string) {
	u.Report.Warn(
		"the grant of cluster %q is not revoked: %s: whoever has a copy of its signing key can publish in its name, if the broker helps\nto revoke it, run on the cluster of the broker: %s",
		sub.Spec.ClusterID, why, broker.RevokeCommand(sub.Spec.BrokerK8sRemoteNamespace, sub.Spec.ClusterID, flags...))
}
