package broker

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker/exchange"
	"subctl/broker/trust"
)

// Reservation determines where a cluster gets a place on the broker when it joins, and how many
// objects in it. The zero Reservation is for a cluster with one gateway.
type Reservation struct {
	// Sets are the clustersets that the cluster enters; empty: "default".
	Sets []string
	// ToPublish are the numbers of objects that the cluster has to publish, by resource:
	// "endpoints", one for each gateway, "cablepolicies" and "exportedservices".
	ToPublish map[string]int
	// Grant bounds the number of gateways. Without one, it is trust.MaxGateways.
	Grant trust.Grant
	// Kinds are exchange.Kinds if they are nil.
	Kinds exchange.Table
}

func (r Reservation) sets() []string {
	if len(r.Sets) == 0 {
		return []string{submarinerv1.DefaultClusterSet}
	}
	return r.Sets
}

// reserve creates the empty objects of a member that do not exist yet. See
// broker/exchange/reserve.go. If the quota has room only for what the member needs at once, it gets
// no more.
func (r Reservation) reserve(ctx context.Context, c client.Client, owner client.Object, id string) error {
	if r.Grant.Gateways == 0 {
		r.Grant.Gateways = trust.MaxGateways
	}
	if r.Kinds == nil {
		r.Kinds = exchange.Kinds()
	}
	for _, k := range r.Kinds {
		// An object is created only if it does not exist: the quota is charged also if it does.
		there, err := reserved(ctx, c, &k, owner, id)
		if err != nil {
			return err
		}
		stored, err := count(ctx, c, &k, owner.GetNamespace())
		if err != nil {
			return err
		}
		most, needed := k.ReservedFor(r.ToPublish[k.Resource], stored, r.Grant)
		has := 0
		for n := range k.PerCluster {
			if there[k.Empty(owner.GetNamespace(), id, n).GetName()] {
				has++
			}
		}
		for n := range most {
			o := k.Empty(owner.GetNamespace(), id, n)
			if there[o.GetName()] {
				continue
			}
			if stored >= k.Quota { // whatever the quota of the broker is
				err = fmt.Errorf("it has %d already, and members exchange nothing with a broker that has more than %d",
					stored, k.Quota)
			} else {
				o.SetOwnerReferences(ownedMeta(owner, o.GetName()).OwnerReferences)
				err = createOwned(ctx, c, o, owner.GetUID())
			}
			full := stored >= k.Quota || isFull(err)
			if full && has >= needed {
				break
			}
			if full {
				return fmt.Errorf(
					"the broker has no room for the %s that cluster %s needs, %d: remove clusters that are gone for good with subctl revoke, or, if the quota %s in namespace %s is less than %d, raise it: %w",
					k.Resource, id, needed, quotaName, owner.GetNamespace(), k.Quota, err)
			}
			if err != nil {
				return fmt.Errorf("reserving the %s of cluster %s: %w", k.Resource, id, err)
			}
			has = has + 1
			stored = stored + 1
		}
	}
	return nil
}

// reserved returns the names of the objects of a kind that a member has already. The objects of an
// earlier member are not among them: the broker is deleting them. The Cluster of a member that was
// revoked before has no owner, since the member has changed the revocation.
func reserved(
	ctx context.Context,
	c client.Client,
	k *exchange.Kind,
	owner client.Object,
	id string,
) (map[string]bool, error) {
	list := k.List.DeepCopyObject().(client.ObjectList)
	if err := c.List(ctx, list, client.InNamespace(
		owner.GetNamespace()), client.MatchingLabels{submarinerv1.ClusterIDLabel: id}); err != nil {
		return nil, fmt.Errorf("reading the %s of cluster %s on the broker: %w", k.Resource, id, err)
	}
	out := map[string]bool{}
	return out, meta.EachListItem(list, func(obj runtime.Object) error {
		o := obj.(client.Object)
		if len(o.GetOwnerReferences()) == 0 || ownedBy(o, owner.GetUID()) {
			out[o.GetName()] = true
		}
		return nil
	})
}

// count returns how many objects of a kind a namespace holds.
func count(ctx context.Context, c client.Client, k *exchange.Kind, ns string) (int, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(k.GroupVersion.WithKind(k.Name + "List"))
	if err := c.List(ctx, list, client.InNamespace(ns), client.Limit(1)); err != nil {
		return 0, fmt.Errorf("counting the %s on the broker: %w", k.Resource, err)
	}
	n := len(list.Items)
	if more := list.RemainingItemCount; more != nil {
		n += int(*more)
	}
	return n, nil
}

// isFull reports whether a quota refused an object. The API server has no reason of its own for
// that.
func isFull(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota")
}
