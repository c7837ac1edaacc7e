package install

import (
	"cmp"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"subctl/cluster"
)

// Ports of the pods. Nothing on a node uses them.
const (
	webhookPort = 9443
	metricsPort = 8080
	probePort   = 8081
)

// memoryLimit is that of each pod, in bytes: the controller of 10,000 rules on 100 CNFs takes at
// most half of it (make bench).
const memoryLimit = 512 << 20

// deployment returns the Deployment of a component. It has no privileges, and needs no network but
// the pods'.
func (c component) deployment(o Options) *appsv1.Deployment {
	probe := func(path string, failures int32) *corev1.Probe {
		return &corev1.Probe{
			ProbeHandler: corev1.ProbeHandler{
				HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(probePort)},
			},
			PeriodSeconds: 5, FailureThreshold: failures, TimeoutSeconds: 3,
		}
	}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: c.name, Namespace: Namespace, Labels: app(c.name)},
		Spec: appsv1.DeploymentSpec{
			Replicas: &o.Replicas,
			Selector: &metav1.LabelSelector{MatchLabels: app(c.name)},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: app(c.name)},
				Spec: corev1.PodSpec{
					ServiceAccountName:           c.name,
					AutomountServiceAccountToken: new(true),
					EnableServiceLinks:           new(false),
					// without the webhooks, no rule can be changed
					PriorityClassName: "system-cluster-critical",
					SecurityContext: &corev1.PodSecurityContext{
						RunAsNonRoot: new(true), RunAsUser: new(int64(65532)), RunAsGroup: new(int64(65532)),
						SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
					},
					TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
						MaxSkew:           1,
						TopologyKey:       corev1.LabelHostname,
						WhenUnsatisfiable: corev1.ScheduleAnyway,
						LabelSelector:     &metav1.LabelSelector{MatchLabels: app(c.name)},
					}},
					Containers: []corev1.Container{{
						Name: c.name, Image: cmp.Or(o.Image, DefaultImage()), ImagePullPolicy: corev1.PullIfNotPresent,
						Command: []string{"subctl"},
						Args: append(slices.Clone(c.args), fmt.Sprintf("--metrics-address=:%d", metricsPort),
							fmt.Sprintf("--probe-address=:%d", probePort)),
						Env:   []corev1.EnvVar{{Name: "GOMEMLIMIT", Value: fmt.Sprint(memoryLimit / 100 * 70)}},
						Ports: c.ports(),
						Resources: corev1.ResourceRequirements{
							Requests: corev1.ResourceList{
								corev1.ResourceCPU:    resource.MustParse("10m"),
								corev1.ResourceMemory: resource.MustParse("64Mi"),
							},
							Limits: corev1.ResourceList{
								corev1.ResourceMemory: *resource.NewQuantity(memoryLimit, resource.BinarySI),
							},
						},
						LivenessProbe:  probe("/healthz", 6),
						ReadinessProbe: probe("/readyz", 2),
						SecurityContext: &corev1.SecurityContext{
							AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
							Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
						},
					}},
				},
			},
		},
	}
	cluster.PlaceDeployment(&d.Spec.Template)
	return d
}

func (c component) ports() []corev1.ContainerPort {
	out := []corev1.ContainerPort{{Name: "metrics", ContainerPort: metricsPort, Protocol: corev1.ProtocolTCP}}
	if c.port != 0 {
		out = append(out, corev1.ContainerPort{Name: "webhook", ContainerPort: c.port, Protocol: corev1.ProtocolTCP})
	}
	return out
}

// service returns the Service by which the API server reaches the webhooks.
func service() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: WebhookName, Namespace: Namespace, Labels: app(WebhookName)},
		Spec: corev1.ServiceSpec{
			Selector: app(WebhookName),
			Ports: []corev1.ServicePort{
				{Name: "webhook", Protocol: corev1.ProtocolTCP, Port: 443, TargetPort: intstr.FromInt32(webhookPort)},
			},
		},
	}
}
