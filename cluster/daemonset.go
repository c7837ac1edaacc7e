package cluster

import (
	"cmp"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/dataplane"
)

// routeAgentMemory is nine times what an idle agent was seen to take (docs/benchmarks.md),
// and leaves room for 5,000 nodes and for all that the quotas of a broker let through.
// Traffic goes on when the limit ends an agent. Gateways have none: in theirs run
// wireguard-go and charon, which queue packets in memory and would take their cables
// along.
const routeAgentMemory = "512Mi"

// graceSeconds is how long a pod may take to stop: the gateway gives its lease
// back, so that another takes over at once and not when the lease runs out.
const graceSeconds = 10

// gateway returns the DaemonSet of the gateway nodes. A person labelled those
// nodes, so by default it runs on them whatever their taints.
func gateway(sub *v1alpha1.Submariner) *appsv1.DaemonSet {
	ds := daemonSet(GatewayName, Image(sub, gatewayComponent), dataplane.GatewayMetricsPort)
	pod := &ds.Spec.Template.Spec
	pod.NodeSelector = map[string]string{submarinerv1.GatewayNodeLabel: "true"}
	if len(sub.Spec.Tolerations) > 0 {
		pod.Tolerations = sub.Spec.Tolerations
	}
	pod.Containers[0].Args = []string{"agent", "gateway", "--node", "$(NODE_NAME)"}
	mountSecret(pod, BrokerSecretName(sub), "/run/secrets/submariner.io/", false)
	mountSecret(pod, PSKSecretName(sub), "/var/run/secrets/submariner.io/", true)
	mountSecret(pod, ClusterKeySecret, "/var/run/secrets/submariner.io/", true)
	mountConfig(pod, sub)
	mountState(pod)
	return ds
}

// routeAgent returns the DaemonSet of all nodes. It sees no Secret.
func routeAgent(sub *v1alpha1.Submariner) *appsv1.DaemonSet {
	ds := daemonSet(RouteAgentName, Image(sub, routeAgentComponent), dataplane.RouteMetricsPort)
	c := &ds.Spec.Template.Spec.Containers[0]
	c.Args = []string{"agent", "route", "--node", "$(NODE_NAME)"}
	c.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(routeAgentMemory)}
	return ds
}

// daemonSet returns what both have in common. Agents program the network of their
// node: for that they need the capabilities NET_ADMIN and NET_RAW (iptables and
// ping), and root because a capability that is added in Kubernetes is not ambient.
// Of the node's devices they need /dev/net/tun: gateways to handle packets in userspace
// where the kernel cannot, the others to know whether that is possible. Its folder is
// mounted, as there is no such file on a node without the module, and a pod that asks
// for it would not start. They need nothing else of the node. Liveness is lenient: a restarted agent
// forwards no better, as traffic does not go through it.
func daemonSet(name, image string, port int32) *appsv1.DaemonSet {
	one := intstr.FromInt32(1)
	probe := func(path string, period, failures int32) *corev1.Probe {
		return &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(port)}},
			PeriodSeconds: period, FailureThreshold: failures, TimeoutSeconds: 3,
		}
	}
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: Namespace, Labels: ours(name)},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{
				Type:          appsv1.RollingUpdateDaemonSetStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &one},
			},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: ours(name)},
				Spec: corev1.PodSpec{
					ServiceAccountName:            name,
					AutomountServiceAccountToken:  new(true),
					HostNetwork:                   true,
					DNSPolicy:                     corev1.DNSDefault, // the node's: pods' DNS may be what is broken
					PriorityClassName:             "system-node-critical",
					TerminationGracePeriodSeconds: new(int64(graceSeconds)),
					Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
					SecurityContext: &corev1.PodSecurityContext{
						SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
					},
					Containers: []corev1.Container{{
						Name: name, Image: image, ImagePullPolicy: corev1.PullIfNotPresent,
						Command: []string{"subctl"},
						Env:     []corev1.EnvVar{fromField("NODE_NAME", "spec.nodeName")},
						Ports: []corev1.ContainerPort{{
							Name: "metrics", ContainerPort: port, HostPort: port, Protocol: corev1.ProtocolTCP,
						}},
						Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
							corev1.ResourceCPU:    resource.MustParse("10m"),
							corev1.ResourceMemory: resource.MustParse("32Mi"),
						}},
						LivenessProbe:  probe("/healthz", 10, 6),
						ReadinessProbe: probe("/readyz", 3, 3),
						SecurityContext: &corev1.SecurityContext{
							RunAsUser:                new(int64(0)),
							AllowPrivilegeEscalation: new(false),
							ReadOnlyRootFilesystem:   new(true),
							Capabilities: &corev1.Capabilities{
								Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_ADMIN", "NET_RAW"},
							},
						},
						VolumeMounts: []corev1.VolumeMount{
							{Name: "tmp", MountPath: "/tmp"},
							{Name: "xtables-lock", MountPath: xtablesLock},
							{Name: "dev-net", MountPath: devNet, ReadOnly: true},
						},
					}},
					Volumes: []corev1.Volume{
						{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
						{Name: "xtables-lock", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{
							Path: xtablesLock, Type: new(corev1.HostPathFileOrCreate),
						}}},
						{Name: "dev-net", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{
							Path: devNet, Type: new(corev1.HostPathDirectoryOrCreate),
						}}},
					},
				},
			},
		},
	}
}

const (
	xtablesLock = "/run/xtables.lock" // keeps two writers of iptables rules on one node apart
	devNet      = "/dev/net"          // where the device "tun" is, by which TUN devices are made
)

// mountSecret mounts a Secret below dir, under its name, readable by root only.
// Files follow a change of the Secret without a restart, and unlike environment
// variables are not inherited, dumped or listed.
func mountSecret(pod *corev1.PodSpec, name, dir string, optional bool) {
	source := &corev1.SecretVolumeSource{SecretName: name, DefaultMode: new(int32(0o400))}
	if optional {
		source.Optional = &optional
	}
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Secret: source}})
	pod.Containers[0].VolumeMounts = append(pod.Containers[0].VolumeMounts,
		corev1.VolumeMount{Name: name, MountPath: dir + name, ReadOnly: true})
}

// DefaultConfigPath is where the ConfigMap with the settings of the cable drivers is
// mounted in the gateway's pods.
const DefaultConfigPath = "/etc/submariner/cable-driver-config"

// mountConfig mounts the ConfigMap with settings of the cable drivers, if the user
// named one. The agents read it through the API server, which is a minute faster than
// the kubelet; the files are for people and upstream's tools. It may not exist, and
// a pod cannot have one of another namespace.
func mountConfig(pod *corev1.PodSpec, sub *v1alpha1.Submariner) {
	ref := sub.Spec.CableDriverCustomConfig
	if ref == nil || ref.ConfigMapName == "" || (ref.Namespace != "" && ref.Namespace != Namespace) {
		return
	}
	const name = "cable-driver-config"
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: ref.ConfigMapName}, Optional: new(true),
		},
	}})
	pod.Containers[0].VolumeMounts = append(pod.Containers[0].VolumeMounts,
		corev1.VolumeMount{Name: name, MountPath: configPath(sub), ReadOnly: true})
}

// mountState gives the pod a place for what charon and wireguard-go write: sockets,
// and configuration with keys in it. It is in memory, and goes with the pod.
func mountState(pod *corev1.PodSpec) {
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: "run", VolumeSource: corev1.VolumeSource{
		EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: resource.NewQuantity(16<<20, resource.BinarySI)},
	}})
	pod.Containers[0].VolumeMounts = append(pod.Containers[0].VolumeMounts,
		corev1.VolumeMount{Name: "run", MountPath: "/run/subctl"},
		corev1.VolumeMount{Name: "run", MountPath: "/run/wireguard", SubPath: "wireguard"})
}

func fromField(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
}

// configPath is where the ConfigMap with the settings of the drivers is mounted.
func configPath(sub *v1alpha1.Submariner) string {
	return cmp.Or(sub.Spec.CableDriverCustomConfigPath, DefaultConfigPath)
}
