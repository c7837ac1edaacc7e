package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker/exchange"
	"subctl/broker/trust"
	"subctl/internal/kube"
	"subctl/internal/words"
)

// This file is what the administrator of a broker does with clustersets. Which clustersets a
// cluster is in is stated twice: by its grant, which the administrator signs and the agents verify,
// and by its rights in the namespaces of the clustersets, which the API server enforces. The newest
// grant is an annotation of the cluster's service account, where the cluster finds it wherever else
// it is a member.

// NewSets returns the objects of new clustersets, for Apply, after all checks: an error tells why
// that would fail, such as rights that the user lacks. It creates nothing, and it is no error if a
// clusterset exists.
func NewSets(ctx context.Context, c client.Client, b *v1alpha1.Broker, sets []string) ([]client.Object, error) {
	o := Options{Namespace: b.Namespace, Kinds: exchange.KindsFrom(b.Spec.PoliciesFrom)}
	var objects []client.Object
	for _, set := range sets {
		if err := CheckClusterSet(set); err != nil {
			return nil, err
		}
		ns := &corev1.Namespace{}
		err := c.Get(ctx, client.ObjectKey{Name: NamespaceIn(b.Namespace, set)}, ns)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading the namespace of clusterset %s: %w", set, err)
		}
		if err == nil && ns.Labels[submarinerv1.ClusterSetLabel] != set {
			return nil, fmt.Errorf("clusterset %s needs namespace %s, which is in use: choose another name", set,
				ns.Name)
		}
		if !ns.DeletionTimestamp.IsZero() {
			return nil, fmt.Errorf(
				"clusterset %s is being deleted: run the command again when its namespace %s is gone", set, ns.Name)
		}
		objects = append(objects, clusterSet(o, set)...)
	}
	for _, set := range sets {
		objects = append(objects, quota(NamespaceIn(b.Namespace, set), b.Namespace, o.Kinds))
	}
	return objects, Preflight(ctx, c, objects)
}

// IsWhole reports whether a clusterset of the broker with the base namespace base was created to
// the end: the quota is created last.
func IsWhole(ctx context.Context, c client.Client, base, set string) (bool, error) {
	quota := &corev1.ResourceQuota{}
	err := c.Get(ctx, client.ObjectKey{Namespace: NamespaceIn(base, set), Name: quotaName}, quota)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading the quota of clusterset %s: %w", set, err)
	}
	return err == nil, nil
}

// deletionLimit is the time limit of DeleteSet. Kubernetes usually takes some seconds to delete a
// namespace.
const deletionLimit = time.Minute

// DeleteSet deletes a clusterset that has no members, and waits until it is gone, so that its name
// can be used again. If a cluster has joined since the caller looked, the error names it. DeleteSet
// does not delete a namespace of the same name that is no clusterset: somebody may have made it
// after deleting the clusterset by hand.
func DeleteSet(ctx context.Context, c client.Client, base, set string) error {
	isGone := func(ctx context.Context) (bool, error) {
		sets, err := SetNames(ctx, c, base)
		return !slices.Contains(sets, set), err
	}
	if gone, err := isGone(ctx); gone || err != nil {
		return err
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: NamespaceIn(base, set)}}
	members, err := membersOf(ctx, c, ns.Name)
	if err != nil {
		return fmt.Errorf("reading the members of clusterset %s: %w", set, err)
	}
	if len(members) > 0 {
		return fmt.Errorf("clusterset %s is not deleted, as it has members: %s: run the command again", set,
			words.List(members))
	}
	if err := client.IgnoreNotFound(c.Delete(ctx, ns)); err != nil {
		return fmt.Errorf("deleting clusterset %s: %w", set, err)
	}
	err = wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, deletionLimit, true, isGone)
	if wait.Interrupted(err) {
		return fmt.Errorf(
			"clusterset %s is being deleted, but Kubernetes has not deleted namespace %s after %v: the conditions of the namespace tell why",
			set, ns.Name, deletionLimit)
	}
	return err
}

// SetChange changes the clustersets of a member.
type SetChange struct {
	Cluster     string
	Add, Remove []string
}

// Apply returns the clustersets of the member after the change, sorted. sets are those before it.
func (s SetChange) Apply(sets []string) []string {
	sets = slices.DeleteFunc(slices.Concat(sets, s.Add),
		func(set string) bool { return slices.Contains(s.Remove, set) })
	slices.Sort(sets)
	return slices.Compact(sets)
}

// ChangeSets changes the clustersets of a member of the broker whose base namespace is base. sets
// are all clustersets of the broker. It gives rights before the grant that mentions them, so that
// the cluster can use the grant at once. Where it takes rights away, it publishes that the cluster
// was removed, so that an older grant does not count there any more. It returns the new grant,
// which the cluster follows by itself. An interrupted change can be repeated, and is, if another
// change of the same cluster came between. A cluster can be removed from a clusterset that the
// broker does not have any more.
func ChangeSets(
	ctx context.Context,
	c client.Client,
	base string,
	sets []string,
	change SetChange,
	r Reservation,
	administrator trust.Key,
	now time.Time,
) (grant trust.Grant, err error) {
	err = kube.Settled(func() error {
		grant, err = changeSets(ctx, c, base, sets, change, r, administrator, now)
		return err
	})
	return grant, err
}

func changeSets(
	ctx context.Context,
	c client.Client,
	base string,
	sets []string,
	change SetChange,
	r Reservation,
	administrator trust.Key,
	now time.Time,
) (trust.Grant, error) {
	sa := &corev1.ServiceAccount{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: base, Name: MemberName(change.Cluster)}, sa); err != nil {
		return trust.Grant{}, fmt.Errorf("reading the identity of cluster %s: %w", change.Cluster, err)
	}
	clusters, err := clustersOf(ctx, c, base, sets, change.Cluster)
	if err != nil {
		return trust.Grant{}, err
	}
	last := lastWord(change.Cluster, administrator.Public(), append(annotationsOf(clusters), sa.Annotations)...)
	before, err := newestGrant(ctx, c, sa, sets, clusters, change, administrator.Public())
	if errors.As(err, &unprovenError{}) && len(change.Add) > 0 {
		before, err = r.awaitGrant(ctx, c, sa, sets, change, administrator.Public(), err)
	}
	switch {
	case err != nil && !errors.As(err, &unprovenError{}):
		return trust.Grant{}, err
	case err != nil:
		err = removeWithoutGrant(ctx, c, base, change, administrator, max(now.UnixMilli(), last), err)
		announce(ctx, c, base, change.Remove, administrator.Public(), now)
		return trust.Grant{}, err
	}
	grant := before
	grant.Sets = change.Apply(grant.Sets)
	grant.Serial = max(grant.Later(now.UnixMilli(), 0), last+1)
	grant.Invited = 0
	token, err := administrator.SignGrant(grant)
	if err != nil {
		return trust.Grant{}, err
	}
	r.Grant = grant
	if len(change.Add) > 0 {
		if r.ToPublish, err = published(ctx, c, base, slices.Concat(change.Remove, grant.Sets),
			change.Cluster); err != nil {
			return trust.Grant{}, err
		}
	}
	for _, set := range change.Add {
		if err := r.add(ctx, c, sa, set, change.Cluster); err != nil {
			return grant, fmt.Errorf("adding cluster %s to clusterset %s: %w", change.Cluster, set, err)
		}
	}
	for _, set := range change.Remove {
		if err := remove(ctx, c, base, set, before, administrator, grant.Serial); err != nil {
			return grant, err
		}
	}
	was := sa.DeepCopy()
	metav1.SetMetaDataAnnotation(&sa.ObjectMeta, submarinerv1.GrantAnnotation, token)
	if err := c.Patch(ctx, sa, client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{}),
		client.FieldOwner(kube.FieldOwner)); err != nil {
		return grant, fmt.Errorf("renewing the grant of cluster %s: %w", change.Cluster, err)
	}
	for _, set := range change.Remove {
		if err := exchange.Kinds().Withdraw(ctx, c, setIn(base, set), change.Cluster,
			administrator.Public()); err != nil {
			return grant, fmt.Errorf("removing the objects of cluster %s from clusterset %s: %w", change.Cluster, set,
				err)
		}
	}
	announce(ctx, c, base, slices.Concat(change.Add, change.Remove), administrator.Public(), now)
	return grant, nil
}

// add gives a member, whose service account is sa, its place in another clusterset.
func (r Reservation) add(ctx context.Context, c client.Client, sa *corev1.ServiceAccount, set, clusterID string) error {
	ctx, cancel := withMemberTimeout(ctx)
	defer cancel()
	return r.enter(ctx, c, sa, set, clusterID, sa.Annotations[ClusterUIDAnnotation])
}

// removeWithoutGrant removes the rights and the objects of a member without a valid grant, and
// publishes its removal, with a serial. why is what is wrong with the grant. Otherwise a member
// could keep its rights by publishing none, and come back with a grant that it has hidden.
func removeWithoutGrant(
	ctx context.Context,
	c client.Client,
	base string,
	change SetChange,
	administrator trust.Key,
	serial int64,
	why error,
) error {
	for _, set := range change.Remove {
		if err := remove(ctx, c, base, set, trust.Grant{Cluster: change.Cluster}, administrator, serial); err != nil {
			return err
		}
		if err := exchange.Kinds().Withdraw(ctx, c, setIn(base, set), change.Cluster,
			administrator.Public()); err != nil {
			return fmt.Errorf("removing the objects of cluster %s from clusterset %s: %w", change.Cluster, set, err)
		}
		why = fmt.Errorf(
			"cluster %s has no rights and no objects in clusterset %s any more, but its grant is not renewed: run the command again when it has published its grant, or remove it with %s: %w",
			change.Cluster, set, RevokeCommand(base, change.Cluster), why)
	}
	return why
}

// published returns how many objects of each resource a cluster has published, in the clusterset
// with the most. A cluster publishes the same in all its clustersets, so it looks at some only.
func published(
	ctx context.Context,
	c client.Client,
	base string,
	sets []string,
	clusterID string,
) (map[string]int, error) {
	const some = 8
	most := map[string]int{}
	for _, set := range sets[:min(len(sets), some)] {
		for _, k := range exchange.Kinds() {
			list := k.List.DeepCopyObject().(client.ObjectList)
			n := 0
			if err := c.List(ctx, list, client.InNamespace(NamespaceIn(base,
				set)), client.MatchingLabels{submarinerv1.ClusterIDLabel: clusterID}); err != nil {
				return nil, fmt.Errorf("reading the %s of cluster %s: %w", k.Resource, clusterID, err)
			}
			err := meta.EachListItem(list, func(o runtime.Object) error {
				if !k.IsEmpty(o.(client.Object)) {
					n++
				}
				return nil
			})
			if err != nil {
				return nil, err
			}
			most[k.Resource] = max(most[k.Resource], n)
		}
	}
	return most, nil
}

// expel ends the rights of a member in a clusterset. The rights of the join file for the cluster
// end first: with them the cluster could bind itself again.
func expel(ctx context.Context, c client.Client, base, set, clusterID string) error {
	ns := NamespaceIn(base, set)
	for _, name := range []string{InviteeName(clusterID), memberBindingName(clusterID)} {
		b := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns}}
		if err := client.IgnoreNotFound(c.Delete(ctx, b)); err != nil {
			return fmt.Errorf("removing the rights of cluster %s in clusterset %s: %w", clusterID, set, err)
		}
	}
	if ns == base {
		return nil
	}
	return leavePlace(ctx, c, ns, clusterID)
}

// remove ends the rights of a member in a clusterset, and replaces its Cluster there by the
// revocation of its grants for the clusterset. It publishes the revocation first, so that it is
// published again if remove is interrupted, and repeated.
func remove(
	ctx context.Context,
	c client.Client,
	base, set string,
	before trust.Grant,
	administrator trust.Key,
	serial int64,
) error {
	var removal []*submarinerv1.Cluster
	known, err := mayBeKnown(ctx, c, base, set, before)
	if err != nil {
		return err
	}
	if known {
		token, err := administrator.SignRevocation(trust.Revocation{Cluster: before.Cluster, Set: set, Serial: serial})
		if err != nil {
			return err
		}
		removal = append(removal, exchange.Revoked(NamespaceIn(base, set), before.Cluster, token))
	}
	return publishAround(ctx, c, removal, administrator.Public(),
		func() error { return expel(ctx, c, base, set, before.Cluster) })
}

// mayBeKnown reports whether the members of a clusterset may know a cluster, which may have deleted
// its Cluster there: it has rights in the clusterset, or its grant before covers it. Otherwise they
// must not learn that the cluster exists.
func mayBeKnown(ctx context.Context, c client.Client, base, set string, before trust.Grant) (bool, error) {
	if before.IsIn(set) {
		return true, nil
	}
	err := c.Get(ctx, client.ObjectKey{Namespace: NamespaceIn(base, set), Name: before.Cluster},
		&submarinerv1.Cluster{})
	switch {
	case apierrors.IsNotFound(err):
		return hasRights(ctx, c, base, set, before.Cluster)
	case err != nil:
		return false, fmt.Errorf("reading Cluster %s in clusterset %s: %w", before.Cluster, set, err)
	}
	return true, nil
}

// ClusterSet is a clusterset of a broker.
type ClusterSet struct {
	Name      string
	Namespace string
	// Members are the clusters that have the rights of a member in the namespace, sorted. A cluster
	// that has just been added has not published anything yet.
	Members []string
}

// ClusterSets returns the clustersets of the broker whose base namespace is base, sorted by name.
func ClusterSets(ctx context.Context, c client.Reader, base string) ([]ClusterSet, error) {
	names, err := SetNames(ctx, c, base)
	if err != nil {
		return nil, err
	}
	out := make([]ClusterSet, len(names))
	err = kube.ForEach(names, func(i int, name string) error {
		members, err := membersOf(ctx, c, NamespaceIn(base, name))
		if err != nil {
			return fmt.Errorf("reading the members of clusterset %s: %w", name, err)
		}
		slices.Sort(members)
		out[i] = ClusterSet{Name: name, Namespace: NamespaceIn(base, name), Members: members}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(out, func(a, b ClusterSet) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// Grants returns the grants of the members that the administrator of a broker has renewed, by
// cluster ID. Those of members that were never added to a clusterset nor removed from one are in
// their Cluster objects only.
func Grants(ctx context.Context, c client.Client, b *v1alpha1.Broker) (map[string]trust.Grant, error) {
	out := map[string]trust.Grant{}
	administrator, err := trust.ParsePublic(b.Annotations[AdministratorAnnotation])
	if err != nil {
		return out, nil // a broker without a key has no grants
	}
	accounts := &corev1.ServiceAccountList{}
	if err := c.List(ctx, accounts, client.InNamespace(b.Namespace)); err != nil {
		return nil, fmt.Errorf("reading the grants of the members: %w", err)
	}
	for _, sa := range accounts.Items {
		id, member := strings.CutPrefix(sa.Name, memberPrefix)
		if g, err := administrator.Grant(sa.Annotations[submarinerv1.GrantAnnotation]); member && err == nil &&
			g.Cluster == id {
			out[id] = g
		}
	}
	return out, nil
}

// Granted returns the members of a broker whose Grants name a clusterset, sorted, by clusterset. A
// clusterset that was deleted by hand, or whose deletion was interrupted, may still have
// grants of clusters that are not its members.
func Granted(ctx context.Context, c client.Client, b *v1alpha1.Broker) (map[string][]string, error) {
	grants, err := Grants(ctx, c, b)
	if err != nil {
		return nil, err
	}
	out := map[string][]string{}
	for id, g := range grants {
		for _, set := range g.Sets {
			out[set] = append(out[set], id)
		}
	}
	for _, ids := range out {
		slices.Sort(ids)
	}
	return out, nil
}

// SetNames returns the names of the clustersets of the broker whose base namespace is base, in the
// order of their namespaces.
func SetNames(ctx context.Context, c client.Reader, base string) (sets []string, err error) {
	namespaces := &corev1.NamespaceList{}
	if err := c.List(ctx, namespaces, client.HasLabels{submarinerv1.ClusterSetLabel}); err != nil {
		return nil, fmt.Errorf("reading the clustersets of the broker: %w", err)
	}
	for _, n := range namespaces.Items {
		// else it is another broker's
		if set := n.Labels[submarinerv1.ClusterSetLabel]; n.Name == NamespaceIn(base, set) {
			sets = append(sets, set)
		}
	}
	return sets, nil
}

// NoSuchSet returns the error that a broker with the clustersets sets does not have a clusterset.
func NoSuchSet(set string, sets []string) error {
	return fmt.Errorf("the broker has no clusterset %q: the clustersets are %s%s", set, words.List(sets),
		words.Meant(set, sets))
}

// membersOf returns the clusters that have the rights of a member in a namespace.
func membersOf(ctx context.Context, c client.Reader, ns string) (ids []string, err error) {
	bindings := &rbacv1.RoleBindingList{}
	if err := c.List(ctx, bindings, client.InNamespace(ns)); err != nil {
		return nil, err
	}
	for _, b := range bindings.Items {
		account, member := strings.CutSuffix(b.Name, memberBindingSuffix)
		if id, ok := strings.CutPrefix(account, memberPrefix); ok && member && b.RoleRef.Name == MemberRoleName {
			ids = append(ids, id)
		}
	}
	return ids, nil
}
