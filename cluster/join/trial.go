package join

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cluster"
	"subctl/internal/kube"
	"subctl/internal/wake"
)

// trialPatience is the time that a node has to pull a new image.
const trialPatience = 3 * time.Minute

// TryImage refuses an image that a gateway node cannot pull or run, before running gateways
// are replaced by it. It does nothing if the image does not change: Wait reports what keeps the
// agents of a first join from running.
func (j *Operation) TryImage(ctx context.Context) error {
	ds, err := kube.Optional(ctx, j.Member, &appsv1.DaemonSet{}, client.ObjectKey{Namespace: cluster.Namespace, Name: cluster.GatewayName})
	if err != nil {
		return err
	}
	image := cluster.GatewayImage(j.Plan.Submariner)
	if ds == nil || slices.ContainsFunc(ds.Spec.Template.Spec.Containers, func(c corev1.Container) bool { return c.Image == image }) {
		return nil
	}
	denied, err := kube.Denied(ctx, j.Member, []kube.Right{
		kube.NewRight("create", "", "pods", cluster.Namespace), kube.NewRight("get", "", "pods", cluster.Namespace), kube.NewRight("delete", "", "pods", cluster.Namespace),
	})
	if err != nil {
		return err
	}
	if len(denied) > 0 {
		j.Report.Warn("image %s is not tried before it replaces the running gateways: this user may not %s", image, denied[0])
		return nil
	}
	nodes := &corev1.NodeList{}
	if err := j.Member.List(ctx, nodes, client.MatchingLabels{submarinerv1.GatewayNodeLabel: "true"}); err != nil {
		return fmt.Errorf("listing gateway nodes: %w", err)
	}
	var pods []*corev1.Pod
	for _, n := range nodes.Items {
		if cluster.IsReady(n) {
			pods = append(pods, cluster.Trial(j.Plan.Submariner, n.Name))
		}
	}
	if len(pods) == 0 {
		return nil
	}
	j.Report.Step("trying image %s on the gateway nodes", image)
	if err := j.try(ctx, pods); err != nil {
		return fmt.Errorf("image %s cannot replace the image of the running agents: %w: specify another one with --image; nothing was changed", image, err)
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
			}
		}
		if running == "" {
			return nil
		}
		if wake.After(ctx, cluster.Poll) != nil {
			return fmt.Errorf("node %s has not run it yet: %w", running, cluster.Interrupted(ctx))
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
	if reason := imageFault(pod); reason != "" {
		return false, errors.New(reason)
	}
	if pod.Status.Phase == corev1.PodFailed {
		text := strings.TrimSuffix(fmt.Sprintf("%s: %s", pod.Status.Reason, pod.Status.Message), ": ")
		for _, c := range pod.Status.ContainerStatuses {
			if t := c.State.Terminated; t != nil {
				text = strings.TrimSuffix(fmt.Sprintf(`"subctl version" ended with exit code %d (%s): %s`, t.ExitCode, t.Reason, t.Message), ": ")
			}
		}
		return false, fmt.Errorf("node %s: %s", pod.Spec.NodeName, text)
	}
	return pod.Status.Phase == corev1.PodSucceeded, nil
}

// imageFaults are the reasons with which a kubelet reports an image that it cannot pull or
// run. Waiting does not help.
var imageFaults = []string{
	"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError", "CreateContainerError", "RunContainerError",
}

// startFaults are the reasons of a terminated container that never started, such as because its
// image is of another program.
var startFaults = []string{"StartError", "ContainerCannotRun"}

// imageFault returns why a pod cannot run its image; empty if that is not known.
func imageFault(pod *corev1.Pod) string {
	for _, c := range pod.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil && slices.Contains(imageFaults, w.Reason) {
			return strings.TrimSuffix(fmt.Sprintf("node %s: %s: %s", pod.Spec.NodeName, w.Reason, w.Message), ": ")
		}
	}
	return ""
}
