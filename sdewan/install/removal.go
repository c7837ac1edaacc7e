package install

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/internal/kube"
	"subctl/internal/progress"
	"subctl/internal/wake"
	"subctl/internal/words"
	"subctl/sdewan/controller"
)

// Removal removes SD-EWAN from a cluster. CNFs, which are Deployments of users, continue.
type Removal struct {
	Client  client.Client
	Report  *progress.Reporter
	Timeout time.Duration // for removing the rules from CNFs, and then for the rest
}

// Run removes remains. First the rules, in the order that their dependencies require, while the controller still removes them
// from CNFs; rules of CNFs that do not answer within Timeout keep on them what is there. Then everything else. It may be repeated.
func (u *Removal) Run(ctx context.Context, r *Remains) error {
	if err := u.deleteRules(ctx, r); err != nil {
		return err
	}
	var errs []error
	for _, obj := range r.Objects {
		errs = append(errs, u.delete(ctx, obj))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := u.gone(ctx, slices.DeleteFunc(slices.Clone(r.Objects), func(o client.Object) bool { _, ok := o.(*appsv1.Deployment); return !ok })); err != nil {
		return err // it would set finalizers again
	}
	if err := u.freeRules(ctx); err != nil {
		return err
	}
	for _, obj := range slices.Concat(r.Definitions, r.Objects) { // what pods wrote while they ended, too
		if err := u.delete(ctx, obj); err != nil {
			return err
		}
	}
	if err := u.gone(ctx, slices.Concat(r.Definitions, r.Objects)); err != nil {
		return err
	}
	if r.Namespace != nil {
		if err := u.leaveNamespace(ctx, r.Namespace); err != nil {
			return err
		}
	}
	u.Report.Done("SD-EWAN is removed")
	return nil
}

// leaveNamespace deletes the namespace. If it contains objects of others, it only removes our labels from it.
func (u *Removal) leaveNamespace(ctx context.Context, ns *corev1.Namespace) error {
	kept, err := others(ctx, u.Client)
	if err != nil {
		return err
	}
	if len(kept) > 0 {
		u.Report.Warn("namespace %s is kept: it contains %s", ns.Name, words.List(kept))
		return kube.Apply(ctx, u.Client, kube.FieldOwner, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns.Name}})
	}
	if err := u.delete(ctx, ns); err != nil {
		return err
	}
	return u.gone(ctx, []client.Object{ns})
}

// deleteRules deletes the rules, and waits until the controller has removed them from CNFs.
func (u *Removal) deleteRules(ctx context.Context, r *Remains) error {
	if len(r.Rules) == 0 {
		return nil
	}
	u.Report.Step("removing %s", r.CountRules())
	for _, obj := range r.Objects { // it would refuse to delete a rule before the rules that use it
		if hooks, ok := obj.(*admissionv1.ValidatingWebhookConfiguration); ok {
			if err := u.delete(ctx, hooks); err != nil {
				return err
			}
		}
	}
	for _, rule := range slices.Backward(r.Rules) {
		if err := u.delete(ctx, rule); err != nil {
			return err
		}
	}
	waiting, cancel := context.WithTimeout(ctx, u.Timeout)
	defer cancel()
	left := r.Rules
	for {
		if now, err := allRules(waiting, u.Client); err == nil {
			left = now
		}
		if len(left) == 0 {
			u.Report.Done("the rules are removed")
			return nil
		}
		if wake.After(waiting, poll) != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			u.Report.Warn("%s could not be removed from CNFs within %s: they stay on these CNFs until their pods restart", words.Count(len(left), "rule"), u.Timeout)
			return nil
		}
	}
}

// freeRules removes the finalizers of the controller, and of upstream's, from the rules that are left, so that their definitions can be deleted.
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

// delete deletes an object. A Deployment is gone only after its pods. For all else, that would only mean to wait for the garbage collector, which
// may take half a minute while definitions disappear.
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
			found, err := kube.Optional(ctx, u.Client, obj.DeepCopyObject().(client.Object), client.ObjectKeyFromObject(obj))
			if err == nil && found == nil {
				break
			}
			if stop := wake.After(ctx, poll); stop != nil {
				return fmt.Errorf("waiting until %s is deleted: %w: run the same command again", describe(u.Client.Scheme(), obj), errors.Join(stop, err))
			}
		}
	}
	return nil
}
