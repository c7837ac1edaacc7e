package exchange

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
)

// Withdraw deletes the objects of cluster id from the broker's namespace of a clusterset.
// c may be the cluster itself or an administrator. It is no error if the objects, or their
// kinds, do not exist.
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
		return c.Delete(ctx, o)
	}
	return c.DeleteAllOf(ctx, k.New(), client.InNamespace(namespace), client.MatchingLabels{submarinerv1.ClusterIDLabel: id})
}
