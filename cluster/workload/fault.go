package workload

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/cluster"
)

// Fault is a reason why a workload lacks a pod that runs.
type Fault struct {
	Workload string // "DaemonSet submariner-gateway"
	Node     string // of the pod; empty for a Deployment
	Pod      string // empty: there is none
	// Text is the reason, in the words of the program that gives it. Remedy is what to do; empty if
	// Text tells.
	Text, Remedy string
	// Lasting reports whether waiting does not help: somebody has to change something.
	Lasting bool
	// Image reports whether the fault is one of the image.
	Image bool
	// Rejected reports whether the API server has not created the pod.
	Rejected bool
	// Usual reports whether this is a state that every pod goes through: nothing is known to be
	// wrong.
	Usual bool
}

// String returns the fault on one line.
func (f Fault) String() string {
	where := f.Workload
	if f.Pod != "" {
		where += ": pod " + f.Pod
	}
	if f.Node != "" {
		where += " on node " + f.Node
	}
	return where + ": " + f.Reason()
}

// Reason returns the text of the fault and its remedy.
func (f Fault) Reason() string {
	if f.Remedy == "" {
		return f.Text
	}
	return f.Text + ": " + f.Remedy
}

// Faults returns why pods are missing or not ready, workload by workload, sorted. None means that
// every workload has all its pods, of its current version, ready, except on nodes that are not
// Ready or that cannot run pods of ours: these are not waited for.
func (s *Snapshot) Faults() []Fault {
	var out []Fault
	for _, name := range s.missing {
		out = append(out, Fault{Workload: name, Text: "it does not exist"})
	}
	for _, ds := range s.DaemonSets {
		out = append(out, s.daemonSet(ds)...)
	}
	for _, d := range s.Deployments {
		out = append(out, s.deployment(d)...)
	}
	slices.SortStableFunc(out, func(a, b Fault) int {
		return cmp.Or(strings.Compare(a.Workload, b.Workload), strings.Compare(a.Node, b.Node),
			strings.Compare(a.Pod, b.Pod))
	})
	return out
}

// NotReady returns the nodes that are not Ready, for whose pods nobody waits.
func (s *Snapshot) NotReady() (out []string) {
	for _, n := range s.Nodes {
		if !cluster.IsReady(n) {
			out = append(out, n.Name)
		}
	}
	return out
}

// Of returns the faults of the workloads with the given names.
func (s *Snapshot) Of(names ...string) []Fault {
	some := *s
	some.missing = slices.DeleteFunc(slices.Clone(s.missing), func(m string) bool {
		return !slices.ContainsFunc(names, func(name string) bool { return strings.HasSuffix(m, " "+name) })
	})
	some.DaemonSets = slices.DeleteFunc(slices.Clone(s.DaemonSets), func(d appsv1.DaemonSet) bool {
		return !slices.Contains(names, d.Name)
	})
	some.Deployments = slices.DeleteFunc(slices.Clone(s.Deployments), func(d appsv1.Deployment) bool {
		return !slices.Contains(names, d.Name)
	})
	return some.Faults()
}

// daemonSet returns the faults of a DaemonSet, node by node.
func (s *Snapshot) daemonSet(ds appsv1.DaemonSet) (out []Fault) {
	name := "DaemonSet " + ds.Name
	nodes := 0
	for _, n := range s.Nodes {
		if !matches(ds.Spec.Template.Spec.NodeSelector, n) || cluster.NoPods(n) != "" {
			continue
		}
		if taint, ok := cluster.Tolerated(n.Spec.Taints, ds.Spec.Template.Spec.Tolerations); !ok {
			out = append(out, Fault{
				Workload: name, Node: n.Name, Lasting: true,
				Text:   fmt.Sprintf("the node has the taint %s, which its pods do not tolerate", taint.ToString()),
				Remedy: "remove the taint, or add it to spec.tolerations of the Submariner",
			})
			nodes++
			continue
		}
		nodes++
		if !cluster.IsReady(n) {
			continue
		}
		if f := s.onNode(ds, n.Name); f != nil {
			f.Workload = name
			f.Node = n.Name
			out = append(out, *f)
		}
	}
	if nodes == 0 {
		out = append(out, Fault{Workload: name, Text: "no node matches"})
	}
	return out
}

func matches(selector map[string]string, n corev1.Node) bool {
	for k, v := range selector {
		if n.Labels[k] != v {
			return false
		}
	}
	return true
}

// onNode returns why a DaemonSet has no ready pod of its current version on a node; nil if it has
// one.
func (s *Snapshot) onNode(ds appsv1.DaemonSet, node string) *Fault {
	var old, ending *corev1.Pod
	for i := range s.Pods {
		p := &s.Pods[i]
		if !controls(&ds, p) || nodeOf(p) != node {
			continue
		}
		switch {
		case p.DeletionTimestamp != nil:
			ending = p
		case !current(ds, p):
			old = p
		default:
			return s.pod(p)
		}
	}
	switch {
	case old != nil:
		return &Fault{Pod: old.Name, Text: "it is of an earlier version and is not replaced yet", Usual: true}
	case s.rejected(&ds) != nil:
		return s.rejected(&ds)
	case ending != nil:
		return &Fault{Pod: ending.Name, Text: "it is ending", Usual: true}
	case ds.Status.ObservedGeneration < ds.Generation:
		return &Fault{Text: "there is no pod yet: Kubernetes has not processed the DaemonSet yet", Usual: true}
	}
	return &Fault{Text: "there is no pod yet" + s.unknown(), Usual: len(s.Hidden) == 0}
}

// unknown returns that the user may not read the reason; empty if there is nothing to read.
func (s *Snapshot) unknown() string {
	if len(s.Hidden) == 0 {
		return ""
	}
	return fmt.Sprintf("; this user may not list %s in namespace %s, which have the reason",
		strings.Join(s.Hidden, " and "), s.Namespace)
}

// controls reports whether a pod belongs to a workload. A pod without owner belongs to the workload
// with its label.
func controls(w metav1.Object, p *corev1.Pod) bool {
	if owner := metav1.GetControllerOf(p); owner != nil {
		return owner.UID == w.GetUID()
	}
	return p.Labels["app"] == w.GetName()
}

// current reports whether a pod has the current template of its DaemonSet.
func current(ds appsv1.DaemonSet, p *corev1.Pod) bool {
	generation, has := p.Labels["pod-template-generation"]

	is := ds.Annotations[appsv1.DeprecatedTemplateGeneration]
	return !has || is == "" || generation == is
}

// nodeOf returns the node of a pod of a DaemonSet, which is known before the pod is scheduled.
func nodeOf(p *corev1.Pod) string {
	if p.Spec.NodeName != "" {
		return p.Spec.NodeName
	}
	if p.Spec.Affinity == nil || p.Spec.Affinity.NodeAffinity == nil {
		return ""
	}
	required := p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil {
		return ""
	}
	for _, term := range required.NodeSelectorTerms {
		for _, f := range term.MatchFields {
			if f.Key == metav1.ObjectNameField && len(f.Values) == 1 {
				return f.Values[0]
			}
		}
	}
	return ""
}

// deployment returns the faults of a Deployment. Its pods on nodes that are not Ready are not
// waited for, as long as another one is available.
func (s *Snapshot) deployment(d appsv1.Deployment) (out []Fault) {
	name := "Deployment " + d.Name
	want := int32(1)
	if d.Spec.Replicas != nil {
		want = *d.Spec.Replicas
	}
	if want == 0 {
		return []Fault{{
			Workload: name, Lasting: true, Text: "it is scaled to 0 replicas",
			Remedy: fmt.Sprintf("kubectl -n %s scale deployment %s --replicas=1", d.Namespace, d.Name),
		}}
	}
	newest := s.newest(d)
	down := s.NotReady()
	var pods []*corev1.Pod
	for i := range s.Pods {
		p := &s.Pods[i]
		switch {
		case !belongs(p, d, newest):
		case slices.Contains(down, p.Spec.NodeName) && want > 1:
			want--
		default:
			pods = append(pods, p)
		}
	}
	status := d.Status
	if status.ObservedGeneration >= d.Generation && status.Replicas == status.UpdatedReplicas &&
		status.UpdatedReplicas >= want && status.AvailableReplicas >= want {
		return nil
	}
	add := func(f *Fault) {
		if f != nil {
			f.Workload = name
			out = append(out, *f)
		}
	}
	for _, p := range pods {
		add(s.pod(p))
	}
	if len(pods) < int(want) {
		f := s.failure(d)
		if f == nil && newest != nil {
			f = s.rejected(newest)
		}
		add(f)
	}
	if len(out) == 0 {
		text := fmt.Sprintf("%d of %d pods are ready", status.AvailableReplicas, want)
		if len(pods) < int(want) {
			text += s.unknown()
		}
		add(&Fault{Text: text, Usual: len(pods) >= int(want) || len(s.Hidden) == 0})
	}
	return out
}

// belongs reports whether a pod that is not being deleted is one of a Deployment, whose newest
// ReplicaSet is nil if it is not known.
func belongs(p *corev1.Pod, d appsv1.Deployment, newest *appsv1.ReplicaSet) bool {
	if p.DeletionTimestamp != nil {
		return false
	}
	if newest != nil {
		return controls(newest, p)
	}
	return metav1.GetControllerOf(p) == nil && controls(&d, p)
}

// newest returns the ReplicaSet with the current template of a Deployment; nil if there is none.
func (s *Snapshot) newest(d appsv1.Deployment) *appsv1.ReplicaSet {
	var out *appsv1.ReplicaSet
	for i := range s.ReplicaSets {
		rs := &s.ReplicaSets[i]
		const revision = "deployment.kubernetes.io/revision"
		if metav1.IsControlledBy(rs, &d) && rs.Annotations[revision] == d.Annotations[revision] {
			out = rs
		}
	}
	return out
}

// failure returns what a Deployment itself reports about pods that could not be created.
func (s *Snapshot) failure(d appsv1.Deployment) *Fault {
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue {
			return s.rejection(c.Message)
		}
	}
	return nil
}
