package join

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/cluster"
)

// newGateways returns the nodes that have just become gateways and whose agent does not run, one line each. The DaemonSet may not have
// noticed them yet.
func (j *Operation) newGateways(ctx context.Context) (out []string, err error) {
	if len(j.Plan.Gateways) == 0 {
		return nil, nil
	}
	pods, err := podsOf(ctx, j.Member, cluster.GatewayName)
	if err != nil {
		return nil, err
	}
	for _, node := range j.Plan.Gateways {
		at := slices.IndexFunc(pods, func(p corev1.Pod) bool { return p.Spec.NodeName == node && p.DeletionTimestamp == nil })
		if at < 0 {
			out = append(out, fmt.Sprintf("DaemonSet %s: there is no pod on node %s yet: do its taints allow one?", cluster.GatewayName, node))
		} else if text := unreadyPod(&pods[at]); text != "" {
			out = append(out, text)
		}
	}
	return out, nil
}

// unreadyAgents returns the DaemonSets and pods that are not ready, one line each.
func unreadyAgents(ctx context.Context, c client.Client) ([]string, error) {
	var out []string
	for _, name := range []string{cluster.RouteAgentName, cluster.GatewayName} {
		ds := &appsv1.DaemonSet{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: cluster.Namespace, Name: name}, ds); err != nil {
			return nil, fmt.Errorf("reading DaemonSet %s: %w", name, err)
		}
		if text := unreadyDaemonSet(ds); text != "" {
			out = append(out, text)
			pods, err := podsOf(ctx, c, name)
			if err != nil {
				return nil, err
			}
			for _, pod := range pods {
				if text := unreadyPod(&pod); text != "" {
					out = append(out, "  "+text)
				}
			}
		}
	}
	return out, nil
}

// podsOf returns the pods of a DaemonSet.
func podsOf(ctx context.Context, c client.Client, name string) ([]corev1.Pod, error) {
	pods := &corev1.PodList{}
	if err := c.List(ctx, pods, client.InNamespace(cluster.Namespace), client.MatchingLabels{"app": name}); err != nil {
		return nil, fmt.Errorf("listing pods of %s: %w", name, err)
	}
	return pods.Items, nil
}

// unreadyDaemonSet returns why a DaemonSet is not ready; empty if its current generation is
// ready.
func unreadyDaemonSet(ds *appsv1.DaemonSet) string {
	s := ds.Status
	switch {
	case s.ObservedGeneration < ds.Generation:
		return fmt.Sprintf("DaemonSet %s: not processed yet", ds.Name)
	case s.DesiredNumberScheduled == 0:
		return fmt.Sprintf("DaemonSet %s: no node matches", ds.Name)
	case s.UpdatedNumberScheduled < s.DesiredNumberScheduled:
		return fmt.Sprintf("DaemonSet %s: %d of %d pods are of this version", ds.Name, s.UpdatedNumberScheduled, s.DesiredNumberScheduled)
	case s.NumberReady < s.DesiredNumberScheduled:
		return fmt.Sprintf("DaemonSet %s: %d of %d pods are ready", ds.Name, s.NumberReady, s.DesiredNumberScheduled)
	}
	return ""
}

// unreadyPod returns why a pod is not ready, according to its status; empty if it is ready.
func unreadyPod(pod *corev1.Pod) string {
	where := "pod " + pod.Name
	if pod.Spec.NodeName != "" {
		where += " on node " + pod.Spec.NodeName
	}
	for _, c := range pod.Status.ContainerStatuses {
		switch {
		case c.Ready:
			return ""
		case notStarted(c) != nil: // there are no logs
			t := notStarted(c)
			return fmt.Sprintf("%s: %s: %s", where, t.Reason, t.Message)
		case c.State.Waiting != nil && c.LastTerminationState.Terminated != nil:
			t := c.LastTerminationState.Terminated
			return fmt.Sprintf("%s: %s, restarted %d times, last exit code %d: see kubectl logs -n %s --previous %s",
				where, c.State.Waiting.Reason, c.RestartCount, t.ExitCode, pod.Namespace, pod.Name)
		case c.State.Waiting != nil:
			return strings.TrimSuffix(fmt.Sprintf("%s: %s: %s", where, c.State.Waiting.Reason, c.State.Waiting.Message), ": ")
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status != corev1.ConditionTrue {
			return fmt.Sprintf("%s: not scheduled: %s", where, c.Message)
		}
	}
	return fmt.Sprintf("%s: running, but not ready: see kubectl logs -n %s %s", where, pod.Namespace, pod.Name)
}

// notStarted returns the state of a container of which the image has no program to start; nil if it
// is another container.
func notStarted(c corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	for _, s := range []corev1.ContainerState{c.State, c.LastTerminationState} {
		if s.Terminated != nil {
			if slices.Contains(startFaults, s.Terminated.Reason) {
				return s.Terminated
			}
			return nil
		}
	}
	return nil
}
