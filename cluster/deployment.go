package cluster

import (
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"subctl/api/submariner/v1alpha1"
)

// clusterAgent returns the Deployment of an agent that acts for the whole cluster. It needs neither
// the network of its node nor any capability, and has no readiness probe, because an agent that
// waits for another one to end is well.
func clusterAgent(
	sub *v1alpha1.Submariner, name, component, role string, metrics, probes int, memory int64,
) *appsv1.Deployment {
	if sub.Spec.ImageOverrides[component] == "" {
		component = gatewayComponent // one image has all agents
	}
	c := corev1.Container{
		Name: name, Image: Image(sub, component), ImagePullPolicy: corev1.PullIfNotPresent,
		Command: []string{"subctl"},
		Args: []string{
			"agent",
			role,
			"--node",
			"$(NODE_NAME)",
			"--pod",
			"$(POD_NAME)",
			"--probe-address",
			":" + strconv.Itoa(probes),
		},
		Env:   []corev1.EnvVar{fromField("NODE_NAME", "spec.nodeName"), fromField("POD_NAME", "metadata.name")},
		Ports: []corev1.ContainerPort{{Name: "metrics", ContainerPort: int32(metrics), Protocol: corev1.ProtocolTCP}},
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi"),
		}},
		LivenessProbe: &corev1.Probe{
			ProbeHandler: corev1.ProbeHandler{
				HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt(probes)},
			},
			PeriodSeconds: 10, FailureThreshold: 6, TimeoutSeconds: 3,
		},
		SecurityContext: &corev1.SecurityContext{
			RunAsNonRoot: new(true), RunAsUser: new(int64(65532)), AllowPrivilegeEscalation: new(false),
			ReadOnlyRootFilesystem: new(true),
			Capabilities:           &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
	}
	limitMemory(&c, memory)
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: Namespace, Labels: ours(name)},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(1)),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: ours(name)},
				Spec: corev1.PodSpec{
					ServiceAccountName: name, AutomountServiceAccountToken: new(true), EnableServiceLinks: new(false),
					PriorityClassName: clusterCritical, TerminationGracePeriodSeconds: new(int64(graceSeconds)),
					SecurityContext: &corev1.PodSecurityContext{
						SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
					},
					Containers: []corev1.Container{c},
				},
			},
		},
	}
	PlaceDeployment(&d.Spec.Template)
	return d
}
