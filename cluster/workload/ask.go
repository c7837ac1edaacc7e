package workload

import (
	"context"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Ask asks the API server whether it would create the pods that are missing, and creates none. Its
// answer replaces the reason from Events: a controller that fails often stops reporting for
// minutes, and its last Event may be of another rule. The reason stays if the API server would
// create the pod for this user, or lets this user create none.
func (s *Snapshot) Ask(ctx context.Context, c client.Client, faults []Fault) []Fault {
	out := slices.Clone(faults)
	answers := map[string]*Fault{} // by workload
	for i, f := range out {
		if f.Pod != "" || f.Lasting && !f.Rejected {
			continue
		}
		answer, asked := answers[f.Workload]
		if !asked {
			answer = s.ask(ctx, c, f.Workload)
			answers[f.Workload] = answer
		}
		if answer != nil {
			out[i] = *answer
			out[i].Workload = f.Workload
			out[i].Node = f.Node
		}
	}
	return out
}

// ask returns the fault of a pod of a workload that the API server would not create; nil if it
// would.
func (s *Snapshot) ask(ctx context.Context, c client.Client, name string) *Fault {
	var pod *corev1.Pod
	for _, ds := range s.DaemonSets {
		if name == "DaemonSet "+ds.Name {
			pod = AsCreated("DaemonSet", &ds, ds.Spec.Template)
		}
	}
	for _, d := range s.Deployments {
		if name == "Deployment "+d.Name {
			pod = AsCreated("Deployment", &d, d.Spec.Template)
		}
	}
	if pod == nil {
		return nil
	}
	err := c.Create(ctx, pod, client.DryRunAll)
	if err == nil || ctx.Err() != nil || strings.Contains(err.Error(), `cannot create resource "pods"`) {
		return nil
	}
	return s.rejection(err.Error())
}

// AsCreated returns the pod that the controller of a workload creates.
func AsCreated(kind string, w metav1.Object, template corev1.PodTemplateSpec) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: w.GetName() + "-", Namespace: w.GetNamespace(), Labels: template.Labels,
			Annotations: template.Annotations,
		},
		Spec: *template.Spec.DeepCopy(),
	}
	if w.GetUID() != "" {
		pod.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: appsv1.SchemeGroupVersion.String(), Kind: kind, Name: w.GetName(), UID: w.GetUID(),
			Controller: new(true),
		}}
	}
	return pod
}
