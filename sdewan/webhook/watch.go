package webhook

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"subctl/sdewan"
)

// watch writes an Event about each role whose annotation is no JSON, when it appears or changes.
// Each replica does: the webhooks elect no leader, and Events with the same reason are one.
type watch[T client.Object] struct {
	reader client.Reader
	events events.EventRecorder
	empty  func() T
}

func addWatch(mgr manager.Manager) error {
	recorder := mgr.GetEventRecorder(Name)
	annotated := builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool {
		_, ok := o.GetAnnotations()[sdewan.BucketAnnotation]
		return ok
	}))
	err := builder.ControllerManagedBy(mgr).Named("sdewan-role").For(&rbacv1.Role{}, annotated).
		Complete(&watch[*rbacv1.Role]{mgr.GetClient(), recorder, func() *rbacv1.Role { return &rbacv1.Role{} }})
	if err != nil {
		return fmt.Errorf("watching Roles: %w", err)
	}
	err = builder.ControllerManagedBy(mgr).Named("sdewan-clusterrole").For(&rbacv1.ClusterRole{}, annotated).
		Complete(
			&watch[*rbacv1.ClusterRole]{
				mgr.GetClient(),
				recorder,
				func() *rbacv1.ClusterRole { return &rbacv1.ClusterRole{} },
			},
		)
	if err != nil {
		return fmt.Errorf("watching ClusterRoles: %w", err)
	}
	return nil
}

// Reconcile implements reconcile.Reconciler.
func (w *watch[T]) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	role := w.empty()
	if err := w.reader.Get(ctx, req.NamespacedName, role); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if _, err := parse(role.GetAnnotations()); err != nil {
		w.events.Eventf(role, nil, corev1.EventTypeWarning, "InvalidAnnotation", "Read", "%.1000s", err.Error())
	}
	return reconcile.Result{}, nil
}
