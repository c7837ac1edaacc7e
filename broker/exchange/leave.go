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
)

// Leave puts the statement of cluster id that it has left in place of its Cluster in the broker's
// namespace of a clusterset, so that it remains when everything else of the cluster is deleted. c is
// the cluster itself. It reports whether there was a Cluster: members can create none.
func Leave(ctx context.Context, c client.Client, namespace, id, leaving string) (found bool, err error) {
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error { // its gateways write, too
		there, o := &submarinerv1.Cluster{}, Left(namespace, id, leaving)
		if err := c.Get(ctx, client.ObjectKeyFromObject(o), there); err != nil {
			return err
		}
		keepIdentity(o, there)
		o.SetOwnerReferences(nil) // or the broker would delete it with the cluster's account
		return c.Update(ctx, o, client.FieldOwner(fieldOwner))
	})
	return err == nil, client.IgnoreNotFound(err)
}

// Withdraw deletes the objects of cluster id from the broker's namespace of a clusterset, except the
// result of Leave. c may be the cluster itself or an administrator. It is no error if the objects, or
// their kinds, do not exist.
func (t Table) Withdraw(ctx context.Context, c client.Client, namespace, id string) error {
	var errs []error
	for _, k := range slices.Backward(t) {
		err := k.withdraw(ctx, c, namespace, id)
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
func (k *Kind) withdraw(ctx context.Context, c client.Client, namespace, id string) error {
	if k.Named != nil && k.Named.Names.Rest == nil {
		o := k.New()
		o.SetName(k.Named.Names.start(id))
		o.SetNamespace(namespace)
		err := c.Get(ctx, client.ObjectKeyFromObject(o), o)
		if client.IgnoreNotFound(err) != nil || err == nil && k.Named.HasGrant && isRemoved(o) {
			return err
		}
		return c.Delete(ctx, o)
	}
	return c.DeleteAllOf(ctx, k.New(), client.InNamespace(namespace), client.MatchingLabels{submarinerv1.ClusterIDLabel: id})
}
