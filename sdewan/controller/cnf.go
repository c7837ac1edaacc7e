package controller

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/sdewan"
	"subctl/sdewan/rest"
)

// UnmanagedAnnotation is on the Deployment of a CNF: the objects on the CNF that nobody removes
// although no rule stands for them, as patterns of module/collection/name separated by commas or
// blanks, such as "firewall/rules/Allow-*, nat/nats/*". The controller removes all other objects
// without a rule, in the collections in which rules are: whatever has been written by hand, or by
// another controller. Without an annotation, a CNF has exactly its rules.
const UnmanagedAnnotation = "sdewan.subctl.io/unmanaged"

// maxPatterns bounds UnmanagedAnnotation: each object on a CNF is compared with each pattern.
const maxPatterns = 256

// rule is a rule with its kind.
type rule struct {
	sdewan.Rule
	kind sdewan.Kind
}

// deleting reports whether a user has deleted the rule.
func (r rule) deleting() bool { return !r.GetDeletionTimestamp().IsZero() }

// inSync reports whether the status says that all pods hold the rule as it is.
func (r rule) inSync() bool {
	s := r.RuleStatus()
	return s.InSync && s.ObservedGeneration == r.GetGeneration()
}

// cnf is a snapshot of what the API server has about one CNF: one label in one namespace.
type cnf struct {
	key         types.NamespacedName // namespace, and value of the label
	deployments []*appsv1.Deployment // with the label; one, or it is a mistake
	pods        []*corev1.Pod        // that live, of the Deployment, by name
	rules       []rule               // with the label, the oldest first
}

// live returns the pods of a Deployment that are to hold rules: not those that are ending, or have
// ended. All of its ReplicaSets count.
func live(d *appsv1.Deployment, pods []corev1.Pod) (out []*corev1.Pod) {
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil {
		return nil
	}
	for i := range pods {
		p := &pods[i]
		owned := slices.ContainsFunc(p.OwnerReferences, func(o metav1.OwnerReference) bool {
			return o.Kind == "ReplicaSet" && o.Controller != nil && *o.Controller &&
				o.Name == d.Name+"-"+p.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
		})
		ended := !p.DeletionTimestamp.IsZero() || p.Status.Phase == corev1.PodFailed ||
			p.Status.Phase == corev1.PodSucceeded
		if owned && !ended && selector.Matches(labels.Set(p.Labels)) {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// isReady reports whether a pod is ready.
func isReady(p *corev1.Pod) bool {
	return addressOf(p).IsValid() && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// addressOf returns the address of a pod; the zero Addr if it has none.
func addressOf(p *corev1.Pod) netip.Addr {
	a, _ := netip.ParseAddr(p.Status.PodIP)
	return a
}

// replicas returns the number of pods that the CNF is to have.
func (c cnf) replicas() int {
	if n := c.deployments[0].Spec.Replicas; n != nil {
		return int(*n)
	}
	return 1
}

// ready reports whether all pods of the CNF are ready. Rules are in effect only if all pods have
// them, now and when one of them must take over.
func (c cnf) ready() bool {
	d := c.deployments[0]
	enough := min(len(c.pods), int(d.Status.ReadyReplicas)) >= c.replicas() &&
		d.Status.ObservedGeneration >= d.Generation
	return enough && !slices.ContainsFunc(c.pods, func(p *corev1.Pod) bool { return !isReady(p) })
}

// fault returns why rules cannot be applied to the CNF, whatever its pods are like; the zero
// problem if they can.
func (c cnf) fault() problem {
	switch {
	case c.key.Name == "":
		return problem{
			NoPurpose,
			fmt.Sprintf("the rule has no label %s: set it to the label of the CNF's Deployment", sdewan.PurposeLabel),
		}
	case len(c.deployments) == 0:
		return problem{
			NoCNF,
			fmt.Sprintf("no Deployment in namespace %s has the label %s=%s: the rule waits for one", c.key.Namespace,
				sdewan.PurposeLabel, c.key.Name),
		}
	case len(c.deployments) > 1:
		a := c.deployments[0].Name
		b := c.deployments[1].Name
		return problem{
			SeveralCNFs,
			fmt.Sprintf("Deployments %s and %s both have the label %s=%s: delete one of them, or change its label", a,
				b, sdewan.PurposeLabel, c.key.Name),
		}
	case c.asleep():
		return problem{
			NoPods,
			fmt.Sprintf("Deployment %s has 0 replicas: the rule waits for a pod", c.deployments[0].Name),
		}
	case c.deployments[0].Spec.Template.Labels[sdewan.PurposeLabel] != c.key.Name:
		return problem{
			NoPods,
			fmt.Sprintf("the pods of Deployment %s do not have the label %s=%s: set it in its template, too",
				c.deployments[0].Name, sdewan.PurposeLabel, c.key.Name),
		}
	}
	return problem{}
}

// asleep reports whether the CNF has no pods, and is to have none: then nothing has to be removed
// from anywhere.
func (c cnf) asleep() bool {
	return len(c.pods) == 0 && c.replicas() == 0
}

// unmanaged returns whether the administrator keeps an object of the CNF, and what is wrong in the
// annotation.
func (c cnf) unmanaged() (keep func(l *rest.Collection, name string) bool, mistakes []string) {
	var patterns []string
	all := strings.FieldsFunc(c.deployments[0].Annotations[UnmanagedAnnotation],
		func(r rune) bool { return r == ',' || r == ' ' || r == '\n' })
	if len(all) > maxPatterns {
		mistakes = append(
			mistakes,
			fmt.Sprintf("annotation %s has %d patterns: only the first %d count", UnmanagedAnnotation, len(all),
				maxPatterns),
		)
		all = all[:maxPatterns]
	}
	for _, p := range all {
		parts := strings.SplitN(p, "/", 3)
		if _, err := path.Match(p, ""); err != nil || len(parts) != 3 ||
			!slices.ContainsFunc(collections(),
				func(l *rest.Collection) bool { return l.String() == parts[0]+"/"+parts[1] }) {
			mistakes = append(
				mistakes,
				fmt.Sprintf("annotation %s has %.100q: write module/collection/name, such as firewall/rules/Allow-*",
					UnmanagedAnnotation, p),
			)
			continue
		}
		patterns = append(patterns, p)
	}
	return func(l *rest.Collection, name string) bool {
		return slices.ContainsFunc(patterns, func(p string) bool {
			rest, ok := strings.CutPrefix(p, l.String()+"/")
			matched, _ := path.Match(rest, name) // checked above
			return ok && matched
		})
	}, mistakes
}

// collections are those in which rules are, in the order of their dependencies.
func collections() []*rest.Collection {
	used := map[*rest.Collection]bool{}
	for _, k := range sdewan.Kinds() {
		used[k.Collection] = true
	}
	return slices.DeleteFunc(slices.Clone(rest.Collections), func(l *rest.Collection) bool { return !used[l] })
}

// snapshot reads what the API server has about a CNF.
func snapshot(ctx context.Context, reader client.Reader, key types.NamespacedName) (cnf, error) {
	c := cnf{key: key}
	in := client.InNamespace(key.Namespace)
	labelled := client.MatchingLabels{sdewan.PurposeLabel: key.Name}
	for _, k := range sdewan.Kinds() {
		list := k.NewList().(client.ObjectList)
		options := []client.ListOption{in, labelled}
		if key.Name == "" {
			options = options[:1] // those without the label, too
		}
		if err := reader.List(ctx, list, options...); err != nil {
			return c, err
		}
		if err := meta.EachListItem(list, func(o runtime.Object) error {
			if x, ok := o.(sdewan.Rule); ok && x.GetLabels()[sdewan.PurposeLabel] == key.Name {
				c.rules = append(c.rules, rule{x, k})
			}
			return nil
		}); err != nil {
			return c, err
		}
	}
	slices.SortStableFunc(c.rules, func(a, b rule) int { return sdewan.Order(a.Rule, b.Rule) })
	if key.Name == "" {
		return c, nil
	}
	var deployments appsv1.DeploymentList
	if err := reader.List(ctx, &deployments, in, labelled); err != nil {
		return c, err
	}
	for i := range deployments.Items {
		c.deployments = append(c.deployments, &deployments.Items[i])
	}
	slices.SortFunc(c.deployments, func(a, b *appsv1.Deployment) int { return cmp.Compare(a.Name, b.Name) })
	if len(c.deployments) != 1 {
		return c, nil
	}
	var pods corev1.PodList
	if err := reader.List(ctx, &pods, in, labelled); err != nil {
		return c, err
	}
	c.pods = live(c.deployments[0], pods.Items)
	return c, nil
}

// revision identifies the configuration of a pod: what a sync of the pod depends on, except what
// the pod itself answers.
type revision [sha256.Size]byte

// revisionOf returns the revision that a pod should have.
func (c cnf) revisionOf(services services) func(*corev1.Pod) revision {
	h := sha256.New()
	d := c.deployments[0]
	fmt.Fprintf(h, "%q %q\n", d.Annotations[UnmanagedAnnotation],
		d.Spec.Template.Annotations[sdewan.NetworksAnnotation])
	for _, x := range c.rules {
		t := services.targets[x.GetUID()]
		fmt.Fprintf(h, "%s %d %v ", x.GetUID(), x.GetGeneration(), x.deleting())
		fmt.Fprintf(h, "%v %s %v\n", t.address, t.proto, t.err == nil)
	}
	of := [sha256.Size]byte(h.Sum(nil))
	return func(p *corev1.Pod) revision {
		annotation, has := p.Annotations[sdewan.NetworksAnnotation]
		return sha256.Sum256(fmt.Appendf(of[:], "%q %v", annotation, has))
	}
}
