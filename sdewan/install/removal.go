package install

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "subctl/api/sdewan/v1alpha1"
	"subctl/internal/kube"
	"subctl/internal/progress"
	"subctl/internal/wake"
	"subctl/internal/words"
	"subctl/sdewan"
	"subctl/sdewan/controller"
)

// Removal removes SD-EWAN from a cluster. CNFs, which are Deployments of users, keep their
// configuration. Without it, they would be open routers without tunnels, whose traffic leaves in
// clear.
type Removal struct {
	Client  client.Client
	Report  *progress.Reporter
	Timeout time.Duration // for ending the controller, for deleting the kinds, and for the namespace, each
}

// Run removes remains. First the controller, so that it changes no CNF while its rules are deleted.
// It may be repeated.
func (u *Removal) Run(ctx context.Context, r *Remains) error {
	var errs []error
	for _, obj := range r.Objects {
		errs = append(errs, u.delete(ctx, obj))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := u.gone(
		ctx,
		slices.DeleteFunc(slices.Clone(
			r.Objects), func(o client.Object) bool { _, ok := o.(*appsv1.Deployment); return !ok }),
	); err != nil {
		return again(err)
	}
	if len(r.Rules) > 0 {
		u.Report.Step("deleting %s", r.CountRules())
	}
	if err := u.free(ctx); err != nil {
		return again(err)
	}
	for _, obj := range slices.Concat(r.Definitions, r.Objects) { // what pods wrote while they ended, too
		if err := u.delete(ctx, obj); err != nil {
			return err
		}
	}
	if len(r.Rules) > 0 { // before anything can take long: when this is run again, there are no rules
		u.Report.Warn("CNFs whose pods run keep their configuration: to end that, delete their Deployments")
	}
	if err := u.gone(ctx, slices.Concat(r.Definitions, r.Objects)); err != nil {
		if held := u.held(ctx); held != "" {
			return fmt.Errorf(
				"%w: %s, which another program has set: remove it if that program does not, and run the same command again",
				err, held)
		}
		return again(err)
	}
	if r.Namespace != nil {
		if err := u.leaveNamespace(ctx, r.Namespace); err != nil {
			return err
		}
	}
	u.Report.Done("SD-EWAN is removed")
	return nil
}

func again(err error) error { return fmt.Errorf("%w: run the same command again", err) }

// held names the first rule or CNFStatus that a finalizer of others keeps from being deleted; empty
// if there is none.
func (u *Removal) held(ctx context.Context) string {
	var kinds []schema.GroupVersionKind
	for _, k := range sdewan.Kinds() {
		kinds = append(kinds, k.GVK)
	}
	kinds = append(kinds, batch.GroupVersion.WithKind("CNFStatus"))
	for _, kind := range kinds {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if u.Client.List(ctx, list) != nil {
			continue // it is gone
		}
		for _, o := range list.Items {
			if f := controller.OthersFinalizers(&o); len(f) > 0 {
				return fmt.Sprintf("%s %s/%s has the finalizer %q", kind.Kind, o.Namespace, o.Name, f[0])
			}
		}
	}
	return ""
}

// leaveNamespace deletes the namespace. If it contains objects of others, it only removes our
// labels from it.
func (u *Removal) leaveNamespace(ctx context.Context, ns *corev1.Namespace) error {
	kept, err := others(ctx, u.Client)
	if err != nil {
		return err
	}
	if len(kept) > 0 {
		u.Report.Warn("namespace %s is kept: it contains %s", ns.Name, words.List(kept))
		return kube.Apply(ctx, u.Client, kube.FieldOwner,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns.Name}})
	}
	if err := u.delete(ctx, ns); err != nil {
		return err
	}
	if err := u.gone(ctx, []client.Object{ns}); err != nil {
		return again(err)
	}
	return nil
}

// free calls freeRules until the API server has noticed that the webhooks, which it would ask, are
// gone.
func (u *Removal) free(ctx context.Context) error {
	waiting, cancel := context.WithTimeout(ctx, u.Timeout)
	defer cancel()
	for {
		err := u.freeRules(ctx)
		if !apierrors.IsInternalError(err) || wake.After(waiting, poll) != nil {
			return err
		}
	}
}

// freeRules removes the finalizers of the controller, and of upstream's, from the rules that are
// left, so that their definitions can be deleted.
func (u *Removal) freeRules(ctx context.Context) error {
	left, err := allRules(ctx, u.Client)
	if err != nil {
		return err
	}
	for _, rule := range left {
		obj, ok := rule.DeepCopyObject().(client.Object)
		if !ok {
			continue
		}
		kept := controller.OthersFinalizers(obj)
		if len(kept) == len(obj.GetFinalizers()) {
			continue
		}
		was := rule.DeepCopyObject().(client.Object)
		obj.SetFinalizers(kept)
		if err := u.Client.Patch(ctx, obj, client.MergeFrom(was)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("removing the finalizers of %s: %w", describe(u.Client.Scheme(), obj), err)
		}
	}
	return nil
}

// delete deletes an object. A Deployment is gone only after its pods. For all else, that would only
// mean to wait for the garbage collector, which may take half a minute while definitions disappear.
func (u *Removal) delete(ctx context.Context, obj client.Object) error {
	policy := metav1.DeletePropagationBackground
	if _, ok := obj.(*appsv1.Deployment); ok {
		policy = metav1.DeletePropagationForeground
	}
	if err := u.Client.Delete(ctx, obj, client.PropagationPolicy(policy)); err != nil && !kube.NotThere(err) {
		return fmt.Errorf("deleting %s: %w", describe(u.Client.Scheme(), obj), err)
	}
	return nil
}

// gone waits until objects do not exist any more.
func (u *Removal) gone(ctx context.Context, objects []client.Object) error {
	ctx, cancel := context.WithTimeoutCause(ctx, u.Timeout, fmt.Errorf("time limit of %s", u.Timeout))
	defer cancel()
	for _, obj := range objects {
		for {
			found, err := kube.Optional(ctx, u.Client, obj.DeepCopyObject().(client.Object),
				client.ObjectKeyFromObject(obj))
			if err == nil && found == nil {
				break
			}
			if stop := wake.After(ctx, poll); stop != nil {
				return fmt.Errorf("waiting until %s is deleted: %w", describe(u.Client.Scheme(), obj),
					errors.Join(stop, err))
			}
		}
	}
	return nil
}
