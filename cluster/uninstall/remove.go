package uninstall

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cluster"
	"subctl/internal/kube"
	"subctl/internal/wake"
	"subctl/internal/words"
)

// remove deletes the remaining objects after the nodes are clean, except the dirty ones.
func (u *Operation) remove(ctx context.Context, r *Remains, dirty []string) error {
	u.Report.Step("removing the remaining objects")
	for _, obj := range r.Namespaced {
		if err := u.delete(ctx, obj); err != nil {
			return err
		}
	}
	if err := u.removeLeases(ctx); err != nil {
		return err
	}
	if err := u.removeAnnotations(ctx, r); err != nil {
		return err
	}
	if err := u.removeImports(ctx); err != nil {
		return err
	}
	for _, kind := range writtenKinds() {
		if err := u.Cluster.DeleteAllOf(ctx, kind, client.InNamespace(cluster.Namespace)); err != nil &&
			!kube.NotThere(err) {
			return fmt.Errorf("deleting the objects of the agents: %w", err)
		}
	}
	if err := u.removeAddresses(ctx, r); err != nil {
		return err
	}
	if err := u.removeNamespace(ctx, r); err != nil {
		return err
	}
	for _, obj := range r.Global {
		if err := u.delete(ctx, obj); err != nil {
			return err
		}
	}
	for _, node := range r.Nodes {
		if err := unlabelGateway(ctx, u.Cluster, node); err != nil {
			return err
		}
	}
	for _, node := range r.Drained {
		if err := undrain(ctx, u.Cluster, node); err != nil {
			return err
		}
	}
	for _, def := range r.Definitions {
		if err := u.delete(ctx, def); err != nil {
			return err
		}
	}
	for _, def := range r.Definitions {
		if err := u.gone(ctx, def); err != nil {
			return err
		}
	}
	if r.Kept != "" {
		u.Report.Warn("the CustomResourceDefinitions are kept: %s", r.Kept)
	}
	u.Report.Done("%s", r.outcome(dirty))
	return nil
}

// removeAddresses deletes what the globalnet agent has made, if the CRDs are kept. The agent does
// so, too, when the Submariner object is gone, but may have been down, or slow.
func (u *Operation) removeAddresses(ctx context.Context, r *Remains) error {
	if r.Kept == "" {
		return nil
	}
	for _, kind := range addressKinds() {
		list, err := kube.ListMetadata(ctx, u.Cluster, kind, "")
		if err != nil {
			return err
		}
		namespaces := map[string]bool{}
		for _, o := range list {
			if cluster.IsOurs(o.Labels) {
				namespaces[o.Namespace] = true
			}
		}
		for namespace := range namespaces {
			all := &metav1.PartialObjectMetadata{}
			all.SetGroupVersionKind(kind)
			err := u.Cluster.DeleteAllOf(ctx, all, client.InNamespace(namespace),
				client.MatchingLabels{cluster.ManagedByLabel: cluster.ManagedBy})
			if err != nil && !kube.NotThere(err) {
				return fmt.Errorf("deleting the objects of the globalnet agent: %w", err)
			}
		}
	}
	return nil
}

// removeAnnotations removes the annotations with global addresses that the globalnet agent, which
// is deleted now, has left. Nothing depends on them.
func (u *Operation) removeAnnotations(ctx context.Context, r *Remains) error {
	if !r.globalnet() {
		return nil
	}
	err := cluster.RemoveAnnotations(ctx, u.Cluster)
	if apierrors.IsForbidden(err) {
		u.Report.Warn("pods and Services may keep annotations with global addresses, which have no effect: %v", err)
		return nil
	}
	return err
}

// removeLeases deletes the Lease of the election and the Leases of the gateway nodes.
func (u *Operation) removeLeases(ctx context.Context) error {
	leases := &coordinationv1.LeaseList{}
	if err := u.Cluster.List(ctx, leases, client.InNamespace(cluster.Namespace)); err != nil {
		return fmt.Errorf("listing the leases of the gateways: %w", err)
	}
	for _, l := range leases.Items {
		if l.Name == submarinerv1.GatewayLease || l.Name == submarinerv1.GlobalnetLease ||
			l.Name == submarinerv1.GatewayNodesLease || l.Name == submarinerv1.ServicesLease ||
			strings.HasPrefix(l.Name, submarinerv1.NodeLeasePrefix) {
			if err := u.delete(ctx, &l); err != nil {
				return err
			}
		}
	}
	return nil
}

func (u *Operation) delete(ctx context.Context, obj client.Object) error {
	return remove(ctx, u.Cluster, obj)
}

func remove(ctx context.Context, c client.Client, obj client.Object) error {
	if err := c.Delete(ctx, obj, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil &&
		!kube.NotThere(err) {
		return fmt.Errorf("deleting %s %s: %w", kube.KindOf(obj), obj.GetName(), err)
	}
	return nil
}

// removeNamespace deletes the namespace if subctl created it and it contains nothing else.
// It waits until the namespace is gone, so that the cluster can join again at once.
func (u *Operation) removeNamespace(ctx context.Context, r *Remains) error {
	ns := r.Namespace
	if ns == nil {
		return nil
	}
	if len(r.OthersIn) > 0 {
		u.Report.Warn("namespace %s is kept: it contains %s", cluster.Namespace, words.List(r.OthersIn))
		patch := []byte(`{"metadata":{"labels":{"` + cluster.ManagedByLabel + `":null}}}`)
		return client.IgnoreNotFound(
			u.Cluster.Patch(ctx, ns, client.RawPatch("application/merge-patch+json", patch),
				client.FieldOwner(kube.FieldOwner)),
		)
	}
	if err := u.removeFailedPods(ctx); err != nil && !apierrors.IsForbidden(err) { // without the right, it takes longer
		return err
	}
	if err := u.delete(ctx, ns); err != nil {
		return err
	}
	u.Report.Step("waiting until namespace %s is deleted", cluster.Namespace)
	return u.gone(ctx, ns)
}

// removeFailedPods deletes the pods on nodes that are not Ready without waiting for their kubelets,
// as kubectl delete --force does: otherwise the namespace would exist until these nodes return.
func (u *Operation) removeFailedPods(ctx context.Context) error {
	nodes := &corev1.NodeList{}
	if err := u.Cluster.List(ctx, nodes); err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	pods := &corev1.PodList{}
	if err := u.Cluster.List(ctx, pods, client.InNamespace(cluster.Namespace)); err != nil {
		return fmt.Errorf("listing the pods of the agents: %w", err)
	}
	for _, p := range pods.Items {
		failed := slices.ContainsFunc(nodes.Items, func(n corev1.Node) bool {
			return n.Name == p.Spec.NodeName && !cluster.IsReady(n)
		})
		if !failed {
			continue
		}
		if err := u.Cluster.Delete(ctx, &p, client.GracePeriodSeconds(0)); err != nil && !kube.NotThere(err) {
			return fmt.Errorf("deleting pod %s on node %s: %w", p.Name, p.Spec.NodeName, err)
		}
	}
	return nil
}

// gonePoll is the interval at which gone checks.
const gonePoll = 200 * time.Millisecond

// holdingTime is the time to find out what holds an object when the time to wait for its deletion
// is over.
const holdingTime = 10 * time.Second

// gone waits, for at most limit, until a deleted object is gone, so that the cluster can join again
// at once: an object that is applied while it is being deleted is deleted nevertheless.
func (u *Operation) gone(ctx context.Context, obj client.Object) error {
	return gone(ctx, u.Cluster, obj, u.Timeout)
}

func gone(ctx context.Context, c client.Client, obj client.Object, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := c.Get(ctx, client.ObjectKeyFromObject(obj), obj)
		if err != nil && kube.NotThere(err) {
			return nil
		}
		if wake.After(ctx, gonePoll) != nil {
			asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), holdingTime)
			defer cancel()
			return fmt.Errorf("waiting until %s is deleted: %w%s; run the same command again to finish", obj.GetName(),
				cluster.Interrupted(ctx), kube.Holding(asking, c, obj))
		}
	}
}
