package install

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"subctl/cluster"
	"subctl/internal/kube"
	"subctl/internal/words"
	"subctl/sdewan"
	"subctl/sdewan/view"
	"subctl/sdewan/webhook"
)

// Remains holds the objects that Removal finds in a cluster: objects that subctl has created, and
// the rules of users.
type Remains struct {
	Objects []client.Object // in the order of deletion, without the following
	// Namespace is the namespace of Objects; nil if subctl did not create it. Others are objects in
	// it that are not ours, and keep it.
	Namespace *corev1.Namespace
	Others    []string
	// Definitions are the CRDs, with which the API server deletes all rules.
	Definitions []client.Object
	Rules       []sdewan.Rule
}

// Empty reports whether there is nothing to remove.
func (r *Remains) Empty() bool {
	return len(r.Objects)+len(r.Definitions) == 0 && r.Namespace == nil
}

// ReadRemains finds what is installed in a cluster.
func ReadRemains(ctx context.Context, c client.Client) (*Remains, error) {
	all, err := removable()
	if err != nil {
		return nil, err
	}
	r := &Remains{}
	for _, obj := range slices.Backward(all) {
		found, err := kube.Optional(ctx, c, obj.DeepCopyObject().(client.Object), client.ObjectKeyFromObject(obj))
		if err != nil {
			return nil, err
		}
		if found == nil || !isOurs(found) {
			continue
		}
		switch found := found.(type) {
		case *corev1.Namespace:
			r.Namespace = found
		case *apiextensionsv1.CustomResourceDefinition:
			r.Definitions = append(r.Definitions, found)
		default:
			r.Objects = append(r.Objects, found)
		}
	}
	if r.Namespace != nil {
		if r.Others, err = others(ctx, c); err != nil {
			return nil, err
		}
	}
	r.Rules, err = allRules(ctx, c)
	return r, err
}

// removable returns all objects that can be there, as far as their names and kinds go: what is
// installed, and what our pods write in their namespace.
func removable() ([]client.Object, error) {
	all, err := Render(Options{Replicas: 1})
	return append(all,
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: webhook.SecretName}},
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: ControllerName}}), err
}

// isOurs reports whether subctl, or a pod of ours, has created an object with a kind and a name of
// removable.
func isOurs(o client.Object) bool {
	switch o.(type) {
	case *corev1.Secret, *coordinationv1.Lease: // of pods, which do not label what they write
		return true
	}
	return cluster.IsOurs(o.GetLabels())
}

// others returns the objects in Namespace that are not ours.
func others(ctx context.Context, c client.Client) ([]string, error) {
	return kube.OthersIn(
		ctx,
		c,
		Namespace,
		kube.PeoplesKinds(),
		func(kind string, o metav1.PartialObjectMetadata) bool {
			app := o.Labels["app"]
			controller := metav1.GetControllerOf(&o)
			return cluster.IsOurs(o.Labels) || kind == "Secret" && o.Name == webhook.SecretName ||
				kind == "Pod" && controller != nil && controller.Kind == "ReplicaSet" &&
					(app == ControllerName || app == WebhookName)
		},
	)
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
		out = append(out, "delete "+describe(s, rule)+" (the pods of its CNF keep it)")
	}
	out = append(out, Lines(s, "delete", slices.Concat(r.Objects, r.Definitions))...)
	switch {
	case r.Namespace == nil:
	case len(r.Others) > 0:
		out = append(out, fmt.Sprintf("keep Namespace %s, which contains %s", Namespace, words.List(r.Others)))
	default:
		out = append(out, "delete "+describe(s, r.Namespace))
	}
	return out
}

// Lines describes what is done to objects, a line for each.
func Lines(s *runtime.Scheme, verb string, objects []client.Object) (out []string) {
	for _, obj := range objects {
		out = append(out, verb+" "+describe(s, obj))
	}
	return out
}

// CheckRemovalRights returns an error that names all rights that the user lacks to remove
// everything.
func CheckRemovalRights(ctx context.Context, c client.Client, where string) error {
	all, err := removable()
	if err != nil {
		return err
	}
	rights, err := kube.ObjectRights(c.Scheme(), all, "get", "delete")
	if err != nil {
		return err
	}
	rights = append(rights, kube.NewRight("patch", "", "namespaces", ""))
	for _, kind := range kube.PeoplesKinds() {
		rights = append(rights, kube.NewRight("list", kind.Group, kube.Resource(kind), Namespace))
	}
	for _, k := range sdewan.Kinds() {
		for _, verb := range []string{"list", "patch"} {
			rights = append(rights, kube.NewRight(verb, k.GVK.Group, k.Resource, ""))
		}
	}
	denied, err := kube.Denied(ctx, c, rights)
	if err != nil {
		return err
	}
	return kube.DeniedError(where, denied,
		"ask an administrator of the cluster, or choose another user or context (docs/permissions.md)")
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
