package install

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"subctl/cluster"
	"subctl/internal/kube"
	"subctl/internal/progress"
	"subctl/internal/wake"
	"subctl/internal/words"
	"subctl/sdewan"
	"subctl/sdewan/controller"
	"subctl/sdewan/view"
)

// Remains is what Removal finds in a cluster: objects that subctl has created, and the rules of users.
type Remains struct {
	Objects []client.Object // in the order of deletion, without definitions
	// Definitions are the CRDs, with which the API server deletes all rules.
	Definitions []client.Object
	Rules       []sdewan.Rule
}

// Empty reports whether there is nothing to remove.
func (r *Remains) Empty() bool { return len(r.Objects)+len(r.Definitions) == 0 }

// ReadRemains finds what is installed in a cluster.
func ReadRemains(ctx context.Context, c client.Client) (*Remains, error) {
	all, err := Render(Options{Replicas: 1})
	if err != nil {
		return nil, err
	}
	r := &Remains{}
	for _, obj := range slices.Backward(all) {
		found, err := kube.Optional(ctx, c, obj.DeepCopyObject().(client.Object), client.ObjectKeyFromObject(obj))
		if err != nil {
			return nil, err
		}
		if found == nil || !cluster.IsOurs(found.GetLabels()) {
			continue
		}
		if _, ok := obj.(*apiextensionsv1.CustomResourceDefinition); ok {
			r.Definitions = append(r.Definitions, found)
		} else {
			r.Objects = append(r.Objects, found)
		}
	}
	r.Rules, err = allRules(ctx, c)
	return r, err
}

// allRules returns the rules of all namespaces, and an error if the user may not read some.
func allRules(ctx context.Context, c client.Client) ([]sdewan.Rule, error) {
	rules, hidden, err := view.Rules(ctx, c, "")
	if errors.Is(err, view.ErrNotInstalled) {
		return nil, nil
	}
	if err == nil && len(hidden) > 0 {
		err = fmt.Errorf("this user may not list %s", strings.Join(hidden, ", "))
	}
	return rules, err
}

// Lines describes the removal, a line for each action.
func (r *Remains) Lines(s *runtime.Scheme) []string {
	var out []string
	for _, rule := range slices.Backward(r.Rules) {
		out = append(out, "delete "+describe(s, rule)+" from the cluster and from the pods of its CNF")
	}
	return append(out, Lines(s, "delete", slices.Concat(r.Objects, r.Definitions))...)
}

// Lines describes what is done to objects, a line for each.
func Lines(s *runtime.Scheme, verb string, objects []client.Object) (out []string) {
	for _, obj := range objects {
		out = append(out, verb+" "+describe(s, obj))
	}
	return out
}

// CheckRemovalRights returns an error that names all rights that the user lacks to remove everything.
func CheckRemovalRights(ctx context.Context, c client.Client, where string) error {
	all, err := Render(Options{Replicas: 1})
	if err != nil {
		return err
	}
	rights, err := kube.ObjectRights(c.Scheme(), all, "get", "delete")
	if err != nil {
		return err
	}
	for _, k := range sdewan.Kinds() {
		for _, verb := range []string{"list", "delete", "patch"} {
			rights = append(rights, kube.NewRight(verb, k.GVK.Group, k.Resource, ""))
		}
	}
	denied, err := kube.Denied(ctx, c, rights)
	if err != nil {
		return err
	}
	return kube.DeniedError(where, denied, "ask an administrator of the cluster, or choose another user or context (docs/permissions.md)")
}

// CountRules describes the rules: "3 rules in namespaces a, b".
func (r *Remains) CountRules() string {
	var namespaces []string
	for _, rule := range r.Rules {
		namespaces = append(namespaces, rule.GetNamespace())
	}
	slices.Sort(namespaces)
	namespaces = slices.Compact(namespaces)
	noun := "namespace"
	if len(namespaces) > 1 {
		noun = "namespaces"
	}
	return fmt.Sprintf("%s in %s %s", words.Count(len(r.Rules), "rule"), noun, strings.Join(namespaces, ", "))
}

func describe(s *runtime.Scheme, obj client.Object) string {
	kind := fmt.Sprintf("%T", obj)
	if gvk, err := apiutil.GVKForObject(obj, s); err == nil {
		kind = gvk.Kind
	}
	return kind + " " + strings.TrimPrefix(client.ObjectKeyFromObject(obj).String(), "/")
}

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
		if _, ok := obj.(*corev1.Namespace); !ok {
			errs = append(errs, u.delete(ctx, obj))
		}
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
	for _, obj := range slices.Concat(r.Definitions, r.Objects) {
		if err := u.delete(ctx, obj); err != nil {
			return err
		}
	}
	if err := u.gone(ctx, slices.Concat(r.Definitions, r.Objects)); err != nil {
		return err
	}
	u.Report.Done("SD-EWAN is removed")
	return nil
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
	for {
		left, err := allRules(waiting, u.Client)
		if err == nil && len(left) == 0 {
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

func (u *Removal) delete(ctx context.Context, obj client.Object) error {
	if err := u.Client.Delete(ctx, obj, client.PropagationPolicy("Foreground")); err != nil && !kube.NotThere(err) {
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
