package join

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cluster"
	"subctl/cluster/workload"
	"subctl/internal/kube"
	"subctl/internal/wake"
)

// trialPatience is the time that a node has to pull a new image.
const trialPatience = 3 * time.Minute

// Try refuses a join whose pods the cluster would not admit or could not start, before running pods
// are deleted for them. It does not start pods if gateways are not replaced: Wait reports what
// keeps the agents of a first join from running.
func (j *Operation) Try(ctx context.Context) error {
	workloads, err := j.admitted(ctx)
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
	_, err := j.admitted(ctx)
	return err
}

// admitted returns the workloads whose pods the join creates or replaces, if the cluster would
// admit these pods.
func (j *Operation) admitted(ctx context.Context) ([]replaced, error) {
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
	if err := j.try(ctx, pods); err != nil && ExchangeFits(err.Error()) {
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

// try runs pods until all have succeeded, or one cannot, and deletes them.
func (j *Operation) try(ctx context.Context, pods []*corev1.Pod) (err error) {
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
			done, err := tried(pod)
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

// tried reports whether the pod of a trial has succeeded. The error is the reason why it
// cannot.
func tried(pod *corev1.Pod) (done bool, err error) {
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
