package workload

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// rejected returns why the controller of a workload could not create a pod, from its Events; nil if
// the latest of them reports no failure.
func (s *Snapshot) rejected(w metav1.Object) *Fault {
	for _, e := range slices.Backward(s.Events) {
		if e.InvolvedObject.UID != w.GetUID() {
			continue
		}
		switch e.Reason {
		case "FailedCreate":
			text := strings.TrimPrefix(e.Message, "(combined from similar events): ")
			return s.rejection(strings.TrimPrefix(text, "Error creating: "))
		case "SuccessfulCreate":
			return nil
		}
	}
	return nil
}

// rejectedName matches the name of a rejected pod in the answer of an API server: its last part is
// random, and another one each time that a controller tries.
var rejectedName = regexp.MustCompile(`([Pp]ods? "[a-z0-9.-]*-)[a-z0-9]{5}"`)

// rejection returns the fault of a pod that the API server has not created, for the reason text.
func (s *Snapshot) rejection(text string) *Fault {
	text = rejectedName.ReplaceAllString(text, `$1…"`)
	return &Fault{
		Text: "its pod is not created: " + text, Remedy: Remedy(text, s.Namespace), Lasting: !temporary(text),
		Rejected: true,
	}
}

// temporary reports whether what an API server answers to the creation of a pod may pass without
// anybody's doing: it rejects no pod, but cannot decide.
func temporary(text string) bool {
	for _, sign := range []string{
		"failed calling webhook", "no endpoints available", "connection refused", "timeout", "Internal error",
		"etcdserver",
		"status unknown for quota", "error looking up service account", "being terminated",
		"try again", "object has been modified",
	} {
		if strings.Contains(text, sign) {
			return true
		}
	}
	return false
}

// remedies are what to do about an answer of an API server, by a part of its text.
var remedies = []struct{ sign, remedy string }{
	{
		"security context constraint",
		"join again with this version of subctl, as a user who may let its ServiceAccount use the constraints",
	},
	{"insufficient quota to match these scopes", "permit critical priority classes in namespace NAMESPACE; " +
		"the ResourceQuota that GKE asks for is submariner-critical-pods"},
	{"exceeded quota", "raise the ResourceQuota that is named here, or delete what uses it up"},
	{"failed quota", "change the ResourceQuota that is named here"},
	{"status unknown for quota", "Kubernetes has not counted yet what the ResourceQuota limits"},
	{
		"violates PodSecurity",
		"label namespace NAMESPACE pod-security.kubernetes.io/enforce=privileged, as join does, or exempt it",
	},
	{
		"usage per Container is",
		"raise the limits of the LimitRange (kubectl get limitranges -n NAMESPACE), or delete it",
	},
	{"usage per Pod is", "raise the limits of the LimitRange (kubectl get limitranges -n NAMESPACE), or delete it"},
	{"must be less than or equal to cpu limit of", // which no agent has: it is a default
		"raise the limits of the LimitRange (kubectl get limitranges -n NAMESPACE), or delete it"},
	{"failed calling webhook", "repair the webhook that is named here, or exempt namespace NAMESPACE from it"},
	{"denied the request", "exempt namespace NAMESPACE from the policy that is named here"},
	{"no PriorityClass", "create the PriorityClass"},
	{"error looking up service account", "join again"},
}

// Remedy returns what to do about the answer of an API server to the creation of a pod in a
// namespace.
func Remedy(text, namespace string) string {
	for _, r := range remedies {
		if strings.Contains(text, r.sign) {
			return strings.ReplaceAll(r.remedy, "NAMESPACE", namespace)
		}
	}
	if strings.Contains(text, "forbidden") {
		return "exempt namespace " + namespace + " from the policy that rejects the pod"
	}
	return ""
}

// when returns when an Event was last reported.
func when(e corev1.Event) time.Time {
	switch {
	case e.Series != nil && !e.Series.LastObservedTime.IsZero():
		return e.Series.LastObservedTime.Time
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp.Time
	case !e.EventTime.IsZero():
		return e.EventTime.Time
	}
	return e.CreationTimestamp.Time
}

// warning returns the message of the latest Event of a pod with one of the reasons; empty if there
// is none.
func (s *Snapshot) warning(p *corev1.Pod, reasons ...string) string {
	for _, e := range slices.Backward(s.Events) {
		if e.InvolvedObject.UID == p.UID && e.InvolvedObject.Kind == "Pod" && slices.Contains(reasons, e.Reason) {
			return e.Reason + ": " + e.Message
		}
	}
	return ""
}

// pullFaults are the reasons with which a kubelet reports an image that it cannot pull or run.
// Waiting does not help.
var pullFaults = []string{
	"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError",
	"CreateContainerError", "RunContainerError",
}

// startFaults are the reasons of a terminated container that never started, such as because its
// image is of another program.
var startFaults = []string{"StartError", "ContainerCannotRun"}

// notCreated are the reasons of a container that the kubelet cannot create although it has the
// image.
var notCreated = []string{"CreateContainerConfigError"}

// pod returns why a pod is not ready, from its status and the Events; nil if it is ready.
func (s *Snapshot) pod(p *corev1.Pod) *Fault {
	if ready(p) {
		return nil
	}
	logs := func(flag string) string { return fmt.Sprintf("see kubectl logs -n %s %s%s", p.Namespace, flag, p.Name) }
	f := &Fault{Pod: p.Name}
	// the kubelet has not admitted it, or has evicted it
	if p.Status.Phase == corev1.PodFailed && p.Status.Reason != "" {
		f.Text = join(p.Status.Reason, p.Status.Message)
		return f
	}
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		switch w := c.State.Waiting; {
		case c.Ready:
		case notStarted(c) != nil: // there are no logs
			f.Text = join(notStarted(c).Reason, notStarted(c).Message)
			f.Lasting = true
			f.Image = true
			return f
		case w != nil && c.LastTerminationState.Terminated != nil && !slices.Contains(pullFaults, w.Reason):
			t := c.LastTerminationState.Terminated
			f.Text = fmt.Sprintf("%s, restarted %d times, last exit code %d", w.Reason, c.RestartCount, t.ExitCode)
			if t.Reason == "OOMKilled" {
				f.Text += ", as it used more memory than its limit"
			}
			f.Remedy = logs("--previous ")
			return f
		case w != nil && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing":
			f.Text = join(w.Reason, w.Message)
			f.Image = slices.Contains(pullFaults, w.Reason)
			f.Lasting = f.Image || slices.Contains(notCreated, w.Reason)
			return f
		case w != nil:
			f.Text = join(w.Reason, w.Message)
			why := s.warning(p, "FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox", "NetworkNotReady")
			if why != "" {
				f.Text = why
			} else {
				f.Text = f.Text + s.unknown()
				f.Usual = true
			}
			return f
		}
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status != corev1.ConditionTrue {
			f.Text = "not scheduled: " + c.Message
			return f
		}
	}
	switch {
	case p.Spec.NodeName == "":
		f.Text = "not scheduled yet"
		f.Usual = true
	case len(p.Status.ContainerStatuses) == 0:
		f.Text = "the kubelet has not started it yet"
		f.Usual = true
	default:
		f.Text = "running, but not ready"
		f.Remedy = logs("")
		f.Usual = true
	}
	return f
}

func join(reason, message string) string { return strings.TrimSuffix(reason+": "+message, ": ") }

// ready reports whether a pod is ready. Its own condition counts: the status of a container on a
// failed node stays as it was.
func ready(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	waiting := func(c corev1.ContainerStatus) bool { return !c.Ready }
	return len(p.Status.ContainerStatuses) > 0 && !slices.ContainsFunc(p.Status.ContainerStatuses, waiting)
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

// Of returns why a pod is not ready, from its status alone; nil if it is ready.
func Of(p *corev1.Pod) *Fault { return (&Snapshot{Namespace: p.Namespace}).pod(p) }

// Explain returns why a pod is not ready, from its status and its Events; nil if it is ready.
func Explain(ctx context.Context, c client.Reader, p *corev1.Pod) *Fault {
	s := &Snapshot{Namespace: p.Namespace}
	_ = s.ReadReasons(ctx, c) // the status tells something without Events, too
	return s.pod(p)
}
