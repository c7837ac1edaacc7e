package exchange

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker/trust"
)

// Leave puts the statement of cluster id that it has left in place of its Cluster in the broker's
// namespace of a clusterset, so that it remains when everything else of the cluster is deleted. c
// is the cluster itself. It reports whether there was a Cluster: members can create none.
func Leave(ctx context.Context, c client.Client, namespace, id, leaving string) (found bool, err error) {
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error { // its gateways write, too
		there := &submarinerv1.Cluster{}
		o := Left(namespace, id, leaving)
		if err := c.Get(ctx, client.ObjectKeyFromObject(o), there); err != nil {
			return err
		}
		keepIdentity(o, there)
		o.SetOwnerReferences(nil) // or the broker would delete it with the cluster's account
		return c.Update(ctx, o, client.FieldOwner(fieldOwner))
	})
	return err == nil, client.IgnoreNotFound(err)
}

// Withdraw deletes the objects of cluster id from a clusterset on the broker, except a proof that
// the cluster has left, or was removed: see provesRemoval. c may be the cluster itself or an
// administrator. It is no error if the objects, or their kinds, do not exist.
func (t Table) Withdraw(ctx context.Context, c client.Client, set Set, id string, administrator trust.PublicKey) error {
	var errs []error
	for _, k := range slices.Backward(t) {
		err := k.withdraw(ctx, c, set, id, administrator)
		if apierrors.IsUnauthorized(err) {
			return err
		}
		if client.IgnoreNotFound(err) != nil && !meta.IsNoMatchError(err) {
			errs = append(errs, fmt.Errorf("deleting its %s: %w", k.Resource, err))
		}
	}
	return errors.Join(errs...)
}

// withdraw deletes the only object that a cluster can have of the kind by its name, so
// that a wrong label does not keep it; objects of other kinds it deletes by their label.
func (k *Kind) withdraw(ctx context.Context, c client.Client, set Set, id string, administrator trust.PublicKey) error {
	if k.Named != nil && k.Named.Names.Rest == nil {
		o := k.New()
		o.SetName(k.Named.Names.start(id))
		o.SetNamespace(set.Namespace)
		err := c.Get(ctx, client.ObjectKeyFromObject(o), o)
		if client.IgnoreNotFound(err) != nil ||
			err == nil && k.Named.HasGrant && provesRemoval(o, set.Name, id, administrator) {
			return err
		}
		return c.Delete(ctx, o)
	}
	return c.DeleteAllOf(ctx, k.New(), client.InNamespace(set.Namespace),
		client.MatchingLabels{submarinerv1.ClusterIDLabel: id})
}

// provesRemoval reports whether an object is the Cluster of a cluster that has left, or was revoked
// or removed from a clusterset, with a valid proof. If the administrator's key is not known, which
// is then zero, every proof counts.
func provesRemoval(o client.Object, set, id string, administrator trust.PublicKey) bool {
	if !isRemoved(o) || administrator.IsZero() {
		return isRemoved(o)
	}
	if r, err := administrator.Revocation(o.GetAnnotations()[submarinerv1.RevocationAnnotation]); err == nil &&
		r.Cluster == id &&
		(r.Set == "" || r.Set == set) {
		return true
	}
	l, err := administrator.Leaving(o.GetAnnotations()[submarinerv1.LeavingAnnotation])
	return err == nil && l.Grant.Cluster == id
}
