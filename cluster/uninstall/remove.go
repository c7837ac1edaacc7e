package uninstall

import (
	"context"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker/exchange"
	"subctl/cluster"
	"subctl/internal/kube"
	"subctl/internal/wake"
	"subctl/internal/words"
)

// remove deletes what is left when the nodes are clean.
func (u *Operation) remove(ctx context.Context, r *Remains) error {
	u.Report.Step("removing what is left")
	for _, obj := range append(r.Namespaced, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: submarinerv1.GatewayLease, Namespace: cluster.Namespace},
	}) {
		if err := u.delete(ctx, obj); err != nil {
			return err
		}
	}
	written := []client.Object{&submarinerv1.Gateway{}, &submarinerv1.RouteAgent{}}
	for _, k := range exchange.Kinds() {
		written = append(written, k.New())
	}
	for _, kind := range written {
		if err := u.Cluster.DeleteAllOf(ctx, kind, client.InNamespace(cluster.Namespace)); err != nil && !kube.Unreadable(err) {
			return fmt.Errorf("deleting what the agents wrote: %w", err)
		}
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
		u.Report.Warn("the CustomResourceDefinitions stay: %s", r.Kept)
	}
	u.Report.Done("%s", r.outcome())
	return nil
}

func (u *Operation) delete(ctx context.Context, obj client.Object) error {
	if err := u.Cluster.Delete(ctx, obj, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil && !kube.Unreadable(err) {
		return fmt.Errorf("deleting %T %s: %w", obj, obj.GetName(), err)
	}
	return nil
}

// removeNamespace deletes the namespace if it is ours and holds nothing else, and
// waits until it is gone, so that the cluster can be joined again at once.
func (u *Operation) removeNamespace(ctx context.Context, r *Remains) error {
	ns := r.Namespace
	if ns == nil {
		return nil
	}
	if len(r.OthersIn) > 0 {
		u.Report.Warn("namespace %s stays: it holds %s", cluster.Namespace, words.List(r.OthersIn))
		patch := []byte(`{"metadata":{"labels":{"` + cluster.ManagedByLabel + `":null}}}`)
		return client.IgnoreNotFound(u.Cluster.Patch(ctx, ns, client.RawPatch("application/merge-patch+json", patch), client.FieldOwner(kube.FieldOwner)))
	}
	if err := u.delete(ctx, ns); err != nil {
		return err
	}
	u.Report.Step("waiting for namespace %s to go", cluster.Namespace)
	return u.gone(ctx, ns)
}

// gonePoll is how often gone looks.
const gonePoll = 200 * time.Millisecond

// gone waits until what was deleted is gone, so that the cluster can be joined
// again at once: what is applied to a thing that is being deleted goes with it.
func (u *Operation) gone(ctx context.Context, obj client.Object) error {
	ctx, cancel := context.WithTimeout(ctx, u.Timeout)
	defer cancel()
	for {
		err := u.Cluster.Get(ctx, client.ObjectKeyFromObject(obj), obj)
		if err != nil && kube.Unreadable(err) {
			return nil
		}
		if wake.After(ctx, gonePoll) != nil {
			return fmt.Errorf("waiting for %s to go: %w%s", obj.GetName(), cluster.Interrupted(ctx), whatHolds(obj))
		}
	}
}

// whatHolds says what keeps an object, as far as Kubernetes says.
func whatHolds(obj client.Object) string {
	if ns, ok := obj.(*corev1.Namespace); ok {
		for _, c := range ns.Status.Conditions {
			if c.Status == corev1.ConditionTrue && c.Message != "" {
				return ": " + c.Message
			}
		}
	}
	if f := obj.GetFinalizers(); len(f) > 0 {
		return ": it has the finalizers " + strings.Join(f, ", ")
	}
	return ""
}
