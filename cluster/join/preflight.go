package join

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cluster"
	"subctl/cluster/workload"
	"subctl/internal/kube"
	"subctl/internal/wake"
)

// replaced is a workload of which the join creates or replaces pods.
type replaced struct {
	kind, name string
	template   corev1.PodTemplateSpec
	live       client.Object // nil: there is none yet
}

// replacedPods returns the workloads whose pods the join replaces: those that do not exist, and
// those whose pods differ from the ones to be. Fields that only the API server or somebody else
// sets are no differences.
func (j *Operation) replacedPods(ctx context.Context) (out []replaced, err error) {
	objs, err := j.Plan.Platform.Render(j.Plan.Submariner)
	if err != nil {
		return nil, err
	}
	for _, obj := range objs {
		template, empty := workloadOf(obj)
		if template == nil {
			continue
		}
		live, err := kube.Optional(ctx, j.Member, empty, client.ObjectKeyFromObject(obj))
		if err != nil {
			return nil, err
		}
		if live != nil {
			if now, _ := workloadOf(live); !differs(*template, *now) {
				continue
			}
		}
		out = append(out, replaced{kube.KindOf(obj), obj.GetName(), *template, live})
	}
	return out, nil
}

// workloadOf returns the template of the pods of a workload, and an empty object of its kind; nil
// if obj is no workload.
func workloadOf(obj client.Object) (template *corev1.PodTemplateSpec, empty client.Object) {
	switch o := obj.(type) {
	case *appsv1.DaemonSet:
		return &o.Spec.Template, &appsv1.DaemonSet{}
	case *appsv1.Deployment:
		return &o.Spec.Template, &appsv1.Deployment{}
	}
	return nil, nil
}

// differs reports whether pods of a template as rendered differ from those of the live template,
// which has defaults of the API server and perhaps fields of others, too.
func differs(rendered, live corev1.PodTemplateSpec) bool {
	want, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&rendered)
	is, err2 := runtime.DefaultUnstructuredConverter.ToUnstructured(&live)
	return err != nil || err2 != nil || !hasAllFields(want, is)
}

// hasAllFields reports whether live has all fields of want, with the same values.
func hasAllFields(want, live any) bool {
	switch want := want.(type) {
	case nil:
		return true
	case map[string]any:
		is, ok := live.(map[string]any)
		for k, v := range want {
			if ok = ok && hasAllFields(v, is[k]); !ok {
				return false
			}
		}
		return ok
	case []any:
		is, ok := live.([]any)
		if !ok || len(is) != len(want) {
			return false
		}
		for i := range want {
			if !hasAllFields(want[i], is[i]) {
				return false
			}
		}
		return true
	}
	return want == live
}

// checkNamespace refuses a namespace that is being deleted. It returns nil if there is none.
func (j *Operation) checkNamespace(ctx context.Context) (*corev1.Namespace, error) {
	ns, err := kube.Optional(ctx, j.Member, &corev1.Namespace{}, client.ObjectKey{Name: cluster.Namespace})
	if err != nil || ns == nil || ns.DeletionTimestamp == nil {
		return ns, err
	}
	why := kube.Holding(ctx, j.Member, ns)
	return nil, fmt.Errorf("namespace %s is being deleted%s: join again when it is gone", cluster.Namespace, why)
}

// askAdmission asks the API server whether it would create the pods of workloads, in every detail
// that admission judges, and creates none. In a namespace that does not exist yet it cannot be
// asked: there, Wait prints what the controllers of the workloads report.
func (j *Operation) askAdmission(ctx context.Context, ns *corev1.Namespace, workloads []replaced) error {
	if ns == nil || len(workloads) == 0 {
		return nil
	}
	right := kube.NewRight("create", "", "pods", cluster.Namespace)
	denied, err := kube.Denied(ctx, j.Member, []kube.Right{right})
	if err != nil {
		return err
	}
	if len(denied) > 0 {
		if slices.ContainsFunc(workloads, func(w replaced) bool { return w.live != nil }) {
			j.Report.Warn("whether the cluster admits the new pods of the agents is not tried: this user may not %s",
				denied[0])
		}
		return nil
	}
	var errs []error
	for _, w := range workloads {
		pod := j.podAsCreated(ctx, w)
		err := j.Member.Create(ctx, pod, client.DryRunAll)
		if err == nil || joinRepairs(err.Error(), ns) {
			continue
		}
		text := fmt.Sprintf("%s %s: its pods would not be created: %v", w.kind, w.name, err)
		if remedy := workload.Remedy(err.Error(), cluster.Namespace); remedy != "" {
			text += ": " + remedy
		}
		if w.live != nil && ExchangeFits(err.Error()) {
			j.Report.Warn("%s; each is created after the one that it replaces is deleted, for which there is room",
				text)
			continue
		}
		errs = append(errs, errors.New(text))
	}
	return errors.Join(errs...)
}

// podAsCreated returns the pod that the controller of a workload creates.
func (j *Operation) podAsCreated(ctx context.Context, w replaced) *corev1.Pod {
	owner := w.live
	if owner == nil {
		owner = &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: w.name}}
	}
	pod := workload.AsCreated(w.kind, owner, w.template)
	account := client.ObjectKey{Namespace: cluster.Namespace, Name: pod.Spec.ServiceAccountName}
	found, err := kube.Optional(ctx, j.Member, &corev1.ServiceAccount{}, account)
	if err == nil && found == nil { // join creates it
		pod.Spec.ServiceAccountName = "default"
	}
	return pod
}

// joinRepairs reports whether a join removes the reason for which the API server would not create a
// pod.
func joinRepairs(answer string, ns *corev1.Namespace) bool {
	return strings.Contains(answer, "insufficient quota to match these scopes: [{PriorityClass") &&
		!cluster.IsOurs(ns.Labels) ||
		strings.Contains(answer, "violates PodSecurity") &&
			ns.Labels["pod-security.kubernetes.io/enforce"] != "privileged" ||
		strings.Contains(answer, "security context constraint")
}

// exceeded matches the end of the answer about a quota: requested, used and permitted quantities.
var exceeded = regexp.MustCompile(`exceeded quota: .*requested: (\S+), used: (\S+), limited: (\S+)$`)

// ExchangeFits reports whether a pod that an exhausted quota rejects can be created once the pod
// that it replaces is deleted: the quota permits what is used now, and a pod alone.
func ExchangeFits(answer string) bool {
	m := exceeded.FindStringSubmatch(answer)
	if m == nil {
		return false
	}
	requested := quantities(m[1])
	used := quantities(m[2])
	limited := quantities(m[3])
	for name, limit := range limited {
		r := requested[name]
		u := used[name]
		if u.Cmp(limit) > 0 || r.Cmp(limit) > 0 {
			return false
		}
	}
	return len(limited) > 0
}

// quantities parses a list such as limits.memory=4Gi,pods=1.
func quantities(text string) map[string]resource.Quantity {
	out := map[string]resource.Quantity{}
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(part, "=")
		if q, err := resource.ParseQuantity(value); err == nil {
			out[name] = q
		}
	}
	return out
}

// trialPatience is the time that a node has to pull a new image.
const trialPatience = 3 * time.Minute

// Try refuses a join whose pods the cluster would not admit or could not start, before running pods
// are deleted for them. It does not start pods if gateways are not replaced: Wait reports what
// keeps the agents of a first join from running.
func (j *Operation) Try(ctx context.Context) error {
	workloads, err := j.admissibleWorkloads(ctx)
	if err != nil {
		return fmt.Errorf("%w\nnothing was changed: running pods go on", err)
	}
	if !slices.ContainsFunc(workloads, func(w replaced) bool {
		return w.name == cluster.GatewayName && w.live != nil
	}) {
		return nil
	}
	return j.tryGateways(ctx)
}

// Admitted returns why the cluster would not admit the pods of this join. It changes nothing.
func (j *Operation) Admitted(ctx context.Context) error {
	_, err := j.admissibleWorkloads(ctx)
	return err
}

// admissibleWorkloads returns the workloads whose pods the join creates or replaces, if the cluster
// would admit these pods.
func (j *Operation) admissibleWorkloads(ctx context.Context) ([]replaced, error) {
	ns, err := j.checkNamespace(ctx)
	if err != nil {
		return nil, err
	}
	workloads, err := j.replacedPods(ctx)
	if err != nil {
		return nil, err
	}
	return workloads, j.askAdmission(ctx, ns, workloads)
}

// tryGateways runs a trial of the new gateway pod on each gateway node that is Ready.
func (j *Operation) tryGateways(ctx context.Context) error {
	image := cluster.GatewayImage(j.Plan.Submariner)
	denied, err := kube.Denied(ctx, j.Member, []kube.Right{
		kube.NewRight("create", "", "pods", cluster.Namespace),
		kube.NewRight("get", "", "pods", cluster.Namespace),
		kube.NewRight("delete", "", "pods", cluster.Namespace),
	})
	if err != nil {
		return err
	}
	if len(denied) > 0 {
		j.Report.Warn("image %s is not tried before it replaces the running gateways: this user may not %s", image,
			denied[0])
		return nil
	}
	nodes := &corev1.NodeList{}
	if err := j.Member.List(ctx, nodes, client.MatchingLabels{submarinerv1.GatewayNodeLabel: "true"}); err != nil {
		return fmt.Errorf("listing gateway nodes: %w", err)
	}
	var pods []*corev1.Pod
	for _, n := range nodes.Items {
		if cluster.IsReady(n) && cluster.NoPods(n) == "" {
			pods = append(pods, cluster.Trial(j.Plan.Submariner, n.Name))
		}
	}
	if len(pods) == 0 {
		return nil
	}
	j.Report.Step("trying image %s on the gateway nodes", image)
	if err := j.runTrial(ctx, pods); err != nil && ExchangeFits(err.Error()) {
		j.Report.Warn("image %s is not tried before it replaces the running gateways: there is no room for one more "+
			"pod: %v", image, err)
		return nil
	} else if err != nil {
		return fmt.Errorf(
			"image %s cannot replace the image of the running agents: %w: specify another one with --image; nothing was changed",
			image, err)
	}
	j.Report.Done("the gateway nodes can run image %s", image)
	return nil
}

// runTrial runs pods until all have succeeded, or one cannot, and deletes them.
func (j *Operation) runTrial(ctx context.Context, pods []*corev1.Pod) (err error) {
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		for _, pod := range pods {
			err = errors.Join(err, client.IgnoreNotFound(j.Member.Delete(ctx, pod)))
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, trialPatience)
	defer cancel()
	for _, pod := range pods {
		if err := j.Member.Delete(ctx, pod.DeepCopy()); client.IgnoreNotFound(err) != nil { // of an interrupted join
			return err
		}
		if err := j.create(ctx, pod); err != nil {
			return err
		}
	}
	for {
		running := ""
		why := ""
		for _, pod := range pods {
			if err := j.Member.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
				return err
			}
			done, err := trialResult(pod)
			if err != nil {
				return err
			}
			if !done {
				running = pod.Spec.NodeName
				if f := workload.Explain(ctx, j.Member, pod); f != nil && !f.Usual {
					why = ": " + f.Text
				}
			}
		}
		if running == "" {
			return nil
		}
		if wake.After(ctx, cluster.Poll) != nil {
			return fmt.Errorf("node %s has not run it yet: %w%s", running, cluster.Interrupted(ctx), why)
		}
	}
}

// create creates a pod, once a pod of that name that is being deleted is gone.
func (j *Operation) create(ctx context.Context, pod *corev1.Pod) error {
	for {
		err := j.Member.Create(ctx, pod)
		if client.IgnoreAlreadyExists(err) != nil || err == nil {
			return err
		}
		if wake.After(ctx, cluster.Poll) != nil {
			return err
		}
	}
}

// trialResult reports whether the pod of a trial has succeeded. The error is the reason why it
// cannot.
func trialResult(pod *corev1.Pod) (done bool, err error) {
	switch pod.Status.Phase {
	case corev1.PodSucceeded:
		return true, nil
	case corev1.PodFailed:
		text := strings.TrimSuffix(fmt.Sprintf("%s: %s", pod.Status.Reason, pod.Status.Message), ": ")
		for _, c := range pod.Status.ContainerStatuses {
			if t := c.State.Terminated; t != nil {
				text = strings.TrimSuffix(
					fmt.Sprintf(`"subctl version" ended with exit code %d (%s): %s`, t.ExitCode, t.Reason, t.Message),
					": ")
			}
		}
		return false, fmt.Errorf("node %s: %s", pod.Spec.NodeName, text)
	}
	if f := workload.Of(pod); f != nil && f.Lasting {
		return false, fmt.Errorf("node %s: %s", pod.Spec.NodeName, f.Text)
	}
	return false, nil
}
