// Package view is SD-EWAN as people look at it: which CNFs and rules a cluster has, whether they
// are in sync, what the Linux of a CNF should hold, and what a rule means. It reads the API server
// only, never a CNF, and changes nothing.
package view

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "subctl/api/sdewan/v1alpha1"
	"subctl/internal/kube"
	"subctl/sdewan"
)

// View holds the CNFs and the rules of a cluster, or of one of its namespaces.
type View struct {
	CNFs     []CNF         // by namespace and purpose
	Rules    []sdewan.Rule // in the order of sdewan.Kinds, and then of creation
	Hidden   []string      // resources of rules that the user may not read
	Statuses []batch.CNFStatus

	services map[sdewan.Rule]service // of CNFServices: see ReadServices
}

// CNF is a Deployment with the label sdewanPurpose, and its pods.
type CNF struct {
	Deployment appsv1.Deployment
	Pods       []corev1.Pod // without those that are being deleted; by name
}

// Purpose returns the label by which rules choose the CNF.
func (c CNF) Purpose() string { return c.Deployment.Labels[sdewan.PurposeLabel] }

// Ready returns the names of the pods that are ready.
func (c CNF) Ready() (names []string) {
	for _, p := range c.Pods {
		if ready(p) {
			names = append(names, p.Name)
		}
	}
	return names
}

func ready(p corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// Read reads a namespace; all of them if it is empty.
func Read(ctx context.Context, c client.Reader, namespace string) (*View, error) {
	v := &View{}
	var deployments appsv1.DeploymentList
	if err := c.List(ctx, &deployments, client.InNamespace(
		namespace), client.HasLabels{sdewan.PurposeLabel}); err != nil {
		return nil, fmt.Errorf("listing deployments: %w", err)
	}
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.InNamespace(namespace), client.HasLabels{sdewan.PurposeLabel}); err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	for _, d := range deployments.Items {
		cnf := CNF{Deployment: d}
		for _, p := range pods.Items {
			if p.Namespace == d.Namespace && p.Labels[sdewan.PurposeLabel] == cnf.Purpose() &&
				p.DeletionTimestamp == nil {
				cnf.Pods = append(cnf.Pods, p)
			}
		}
		slices.SortFunc(cnf.Pods, func(a, b corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
		v.CNFs = append(v.CNFs, cnf)
	}
	slices.SortFunc(v.CNFs, func(a, b CNF) int {
		return cmp.Or(cmp.Compare(a.Deployment.Namespace, b.Deployment.Namespace),
			cmp.Compare(a.Purpose(), b.Purpose()), cmp.Compare(a.Deployment.Name, b.Deployment.Name))
	})
	var err error
	v.Rules, v.Hidden, err = Rules(ctx, c, namespace)
	return v, err
}

// ReadStatuses adds what the controller has read from CNFs.
func (v *View) ReadStatuses(ctx context.Context, c client.Reader, namespace string) error {
	var list batch.CNFStatusList
	if err := c.List(ctx, &list, client.InNamespace(namespace)); err != nil && !kube.NotThere(err) {
		return fmt.Errorf("listing cnfstatuses: %w", err)
	}
	v.Statuses = list.Items
	return nil
}

// ErrNotInstalled reports that the API server has no kind of rules.
var ErrNotInstalled = errors.New(
	"SD-EWAN is not installed in this cluster: run \"subctl sdewan install\", or choose another cluster with --context")

// Rules returns the rules of a namespace, or of all if it is empty, in the order of sdewan.Kinds,
// and then of creation, and the resources that the user may not read: the ClusterRole view does not
// show rules with keys. A kind that the API server does not have has no rules. It is an error if
// the user may read no kind at all.
func Rules(ctx context.Context, c client.Reader, namespace string) (rules []sdewan.Rule, hidden []string, err error) {
	kinds := sdewan.Kinds()
	lists := make([][]sdewan.Rule, len(kinds))
	refused := make([]error, len(kinds))
	var missing atomic.Int32
	err = kube.ForEach(kinds, func(i int, k sdewan.Kind) error {
		list, ok := k.NewList().(client.ObjectList)
		if !ok {
			return fmt.Errorf("%s has no list", k.GVK.Kind)
		}
		err := c.List(ctx, list, client.InNamespace(namespace))
		switch {
		case kube.NotThere(err):
			missing.Add(1)
			return nil
		case apierrors.IsForbidden(err):
			refused[i] = err
			return nil
		case err != nil:
			return fmt.Errorf("listing %s: %w", k.Resource, err)
		}
		err = meta.EachListItem(list, func(o runtime.Object) error {
			if rule, ok := o.(sdewan.Rule); ok {
				lists[i] = append(lists[i], rule)
			}
			return nil
		})
		slices.SortStableFunc(lists[i], sdewan.Order)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	if int(missing.Load()) == len(kinds) {
		return nil, nil, ErrNotInstalled
	}
	for i, k := range kinds {
		if refused[i] != nil {
			hidden = append(hidden, k.Resource+"."+k.GVK.Group)
			err = refused[i]
		}
	}
	if len(hidden) < len(kinds) {
		err = nil
	}
	return slices.Concat(lists...), hidden, err
}

// Of returns the CNFs to which a rule applies: one, unless something is wrong.
func (v *View) Of(r sdewan.Rule) (out []CNF) {
	purpose := r.GetLabels()[sdewan.PurposeLabel]
	for _, c := range v.CNFs {
		if purpose != "" && c.Purpose() == purpose && c.Deployment.Namespace == r.GetNamespace() {
			out = append(out, c)
		}
	}
	return out
}

// RulesOf returns the rules of a CNF.
func (v *View) RulesOf(c CNF) (out []sdewan.Rule) {
	for _, r := range v.Rules {
		if r.GetNamespace() == c.Deployment.Namespace && r.GetLabels()[sdewan.PurposeLabel] == c.Purpose() {
			out = append(out, r)
		}
	}
	return out
}

// Find returns the CNFs whose purpose, or the name of whose Deployment, is name.
func (v *View) Find(name string) (out []CNF) {
	for _, c := range v.CNFs {
		if c.Purpose() == name {
			out = append(out, c)
		}
	}
	for _, c := range v.CNFs {
		if len(out) == 0 && c.Deployment.Name == name {
			out = append(out, c)
		}
	}
	return out
}

// KindName returns the name of a rule's kind.
func KindName(r sdewan.Rule) string {
	k, ok := sdewan.KindOf(r)
	if !ok {
		return kube.KindOf(r)
	}
	return k.GVK.Kind
}

// KindNames returns the names of the kinds of rules, each once, in the order of sdewan.Kinds.
func KindNames() (names []string) {
	for _, k := range sdewan.Kinds() {
		if !slices.Contains(names, k.GVK.Kind) {
			names = append(names, k.GVK.Kind)
		}
	}
	return names
}

// IsKind reports whether FindRule knows a kind.
func IsKind(text string) bool {
	return slices.ContainsFunc(sdewan.Kinds(), func(k sdewan.Kind) bool { return named(k, text) })
}

// named reports whether a text names a kind: its name, its resource, or that with its group, in any
// case.
func named(k sdewan.Kind, text string) bool {
	text = strings.ToLower(text)
	return text == strings.ToLower(k.GVK.Kind) || text == k.Resource || text == k.Resource+"."+k.GVK.Group
}

// FindRule returns the rules with a name, or with a kind and a name, "Mwan3Rule/http"; the kind may
// be a resource, in any case.
func (v *View) FindRule(text string) (out []sdewan.Rule) {
	kind, name, both := strings.Cut(text, "/")
	if !both {
		kind = ""
		name = text
	}
	for _, r := range v.Rules {
		k, _ := sdewan.KindOf(r)
		if r.GetName() == name && (kind == "" || named(k, kind)) {
			out = append(out, r)
		}
	}
	return out
}
