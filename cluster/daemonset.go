package cluster

import (
	"cmp"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/dataplane"
)

// GatewayMemory and RouteAgentMemory are the memory limits of the agents, in bytes. The worst
// objects that a broker admits should take at most 75 % of them (agent.BenchmarkFootprint). Traffic
// continues when the limit ends a route agent, or a gateway whose cables are in the kernel. Cables
// of wireguard-go and charon end with the gateway's pod: they count towards its limit, too.
const (
	GatewayMemory    = 6 << 30
	RouteAgentMemory = 2 << 30
)

// GoMemory returns the memory limit of the Go runtime for an agent with a memory limit: above it,
// the garbage collector runs more often. The rest is for other programs and for what the
// runtime does not count.
func GoMemory(limit int64) int64 { return limit / 100 * 70 }

// graceSeconds is the time that a pod has to stop. In it the gateway releases its Lease, so
// that another gateway takes over at once, not after the Lease expires.
const graceSeconds = 10

// settleSeconds is how long the pod of a gateway must be ready before that of the next one is
// replaced. Programs of cables, such as wireguard-go, end with their pod, and packets take the
// cables of the new pod once these have answered probes: without the pause, a cluster with two
// gateways may have no cable meanwhile.
const settleSeconds = 5

// routeAgentsAtOnce is the share of the route agents that a rollout replaces at a time. Packets do
// not pass through an agent, so a rollout could replace all at once. But a node does not notice
// that a gateway has failed while its agent is replaced, hence only half of the nodes. An agent on
// a node that is not Ready counts as one that is being replaced, for as long as the node is not
// Ready: with more than half, rounded up, one such node of two does not stop the rollout, nor do
// two of five.
const routeAgentsAtOnce = "51%"

// gateway returns the DaemonSet of the gateway nodes. A person has chosen these nodes by
// labelling them, so by default its pods tolerate every taint.
//
// A rollout replaces one gateway at a time, so that the others carry the traffic meanwhile. broken
// gateways, whose nodes are not Ready, count as gateways that are being replaced and are no reason
// to wait.
func gateway(sub *v1alpha1.Submariner, broken int) *appsv1.DaemonSet {
	ds := daemonSet(GatewayName, Image(sub, gatewayComponent), dataplane.GatewayMetricsPort, dataplane.GatewayProbePort)
	ds.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = new(intstr.FromInt(1 + broken))
	ds.Spec.MinReadySeconds = settleSeconds
	pod := &ds.Spec.Template.Spec
	pod.NodeSelector = map[string]string{submarinerv1.GatewayNodeLabel: "true"}
	if len(sub.Spec.Tolerations) > 0 {
		pod.Tolerations = sub.Spec.Tolerations
	}
	pod.Containers[0].Args = []string{"agent", "gateway", "--node", "$(NODE_NAME)"}
	limitMemory(&pod.Containers[0], GatewayMemory)
	mountSecret(pod, BrokerSecretName(sub), brokerSecretPath, false)
	mountSecret(pod, PSKSecretName(sub), "/var/run/secrets/submariner.io/"+PSKSecretName(sub), true)
	mountSecret(pod, ClusterKeySecret, "/var/run/secrets/submariner.io/"+ClusterKeySecret, true)
	mountSecret(pod, TrustSecret, "/var/run/secrets/submariner.io/"+TrustSecret, true)
	mountConfig(pod, sub.Spec)
	mountState(pod)
	return ds
}

// mountConfig mounts the ConfigMap with the settings of the cable drivers where the user wants it.
// A pod starts without the ConfigMap, and a mount of a path needs one: people may make it later.
// Agents may read ConfigMaps of their own namespace only.
func mountConfig(pod *corev1.PodSpec, spec v1alpha1.SubmarinerSpec) {
	ref := spec.CableDriverCustomConfig
	path := spec.CableDriverCustomConfigPath
	if ref == nil || path == "" || ref.ConfigMapName == "" || cmp.Or(ref.Namespace, Namespace) != Namespace {
		return
	}
	const name = "cable-driver-config"
	source := &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: ref.ConfigMapName}, Optional: new(true),
	}
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{ConfigMap: source}})
	c := &pod.Containers[0]
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: path, ReadOnly: true})
}

// routeAgent returns the DaemonSet of all nodes. Its pods mount no Secret.
func routeAgent(sub *v1alpha1.Submariner) *appsv1.DaemonSet {
	ds := daemonSet(RouteAgentName, Image(sub, routeAgentComponent), dataplane.RouteMetricsPort,
		dataplane.RouteProbePort)
	ds.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = new(intstr.FromString(routeAgentsAtOnce))
	c := &ds.Spec.Template.Spec.Containers[0]
	c.Args = []string{"agent", "route", "--node", "$(NODE_NAME)"}
	limitMemory(c, RouteAgentMemory)
	return ds
}

// limitMemory sets the memory limit of an agent.
func limitMemory(c *corev1.Container, limit int64) {
	c.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: *resource.NewQuantity(limit, resource.BinarySI)}
	c.Env = append(c.Env, corev1.EnvVar{Name: "GOMEMLIMIT", Value: strconv.FormatInt(GoMemory(limit), 10)})
}

// daemonSet returns the common part of both DaemonSets.
func daemonSet(name, image string, metrics, probes int32) *appsv1.DaemonSet {
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: Namespace, Labels: ours(name)},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{
				Type:          appsv1.RollingUpdateDaemonSetStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDaemonSet{},
			},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: ours(name)},
				Spec: corev1.PodSpec{
					ServiceAccountName:            name,
					AutomountServiceAccountToken:  new(true),
					EnableServiceLinks:            new(false), // no environment variables of Services
					HostNetwork:                   true,
					DNSPolicy:                     corev1.DNSDefault, // the node's: the cluster's DNS may be the fault
					PriorityClassName:             nodeCritical,
					TerminationGracePeriodSeconds: new(int64(graceSeconds)),
					Affinity:                      SuitedNodes(),
					Tolerations:                   slices.Clone(everyTaint),
					SecurityContext: &corev1.PodSecurityContext{
						// On nodes with SELinux, a container of another type may not write the lock
						// of iptables. Other nodes ignore the type.
						SELinuxOptions: &corev1.SELinuxOptions{Type: "spc_t"},
						SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
					},
					Containers: []corev1.Container{container(name, image, metrics, probes)},
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

// container returns the container of an agent.
//
// The only environment variables are the name of the node and the memory limit of the Go runtime. A
// pod depends on its image, on tolerations, on the names of the Secrets and of the ConfigMap that
// it mounts, and a gateway on whether the cluster has global networks. All other settings are read
// from the Submariner object, which the agents watch, so that a changed setting restarts no pod and
// interrupts no cable.
//
// Agents configure the network of their node. For that they need the capabilities
// NET_ADMIN and NET_RAW (iptables and ping), and user ID 0, because capabilities added by
// Kubernetes are not ambient. Of the node's devices they need /dev/net/tun: gateways
// process packets in userspace where the kernel cannot, and route agents report whether
// that is possible. The directory of the device is mounted rather than the device, because
// a pod that mounts a missing file does not start.
//
// The probes use the loopback address of the node, which the pod and the kubelet share. The
// liveness probe is lenient: traffic does not pass through an agent, so a restart does not help
// traffic.
func container(name, image string, metrics, probes int32) corev1.Container {
	probe := func(path string, period, failures int32) *corev1.Probe {
		return &corev1.Probe{
			ProbeHandler: corev1.ProbeHandler{
				HTTPGet: &corev1.HTTPGetAction{Host: "127.0.0.1", Path: path, Port: intstr.FromInt32(probes)},
			},
			PeriodSeconds: period, FailureThreshold: failures, TimeoutSeconds: 3,
		}
	}
	return corev1.Container{
		Name: name, Image: image, ImagePullPolicy: corev1.PullIfNotPresent,
		Command: []string{"subctl"},
		Env:     []corev1.EnvVar{fromField("NODE_NAME", "spec.nodeName")},
		Ports: []corev1.ContainerPort{{
			Name: "metrics", ContainerPort: metrics, HostPort: metrics, Protocol: corev1.ProtocolTCP,
		}},
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			// As much as kube-proxy and flannel request, and a multiple of what an idle agent
			// takes: on a node without idle time, a container has a share in proportion to its
			// request, and an agent that waits for a processor notices late that a gateway has
			// failed.
			corev1.ResourceCPU:    resource.MustParse("100m"),
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
	}
}

const (
	xtablesLock = "/run/xtables.lock" // the lock of all programs that write iptables rules on the node
	devNet      = "/dev/net"          // the directory of the device "tun", which creates TUN devices
)

// brokerSecretPath is the directory from which the gateway agent reads the credentials for the
// broker, whatever the name of the Secret with them.
const brokerSecretPath = "/run/secrets/submariner.io/" + BrokerSecret

// mountSecret mounts a Secret at path, readable by root only. Mounted files follow a
// change of the Secret without a restart. Unlike environment variables, they are not
// inherited by child processes and do not appear in listings.
func mountSecret(pod *corev1.PodSpec, name, path string, optional bool) {
	source := &corev1.SecretVolumeSource{SecretName: name, DefaultMode: new(int32(0o400))}
	if optional {
		source.Optional = &optional
	}
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Secret: source}})
	pod.Containers[0].VolumeMounts = append(pod.Containers[0].VolumeMounts,
		corev1.VolumeMount{Name: name, MountPath: path, ReadOnly: true})
}

// mountState mounts a directory in memory for the sockets of charon and wireguard-go, and
// for their configuration, which contains keys. It disappears with the pod.
func mountState(pod *corev1.PodSpec) {
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: "run", VolumeSource: corev1.VolumeSource{
		EmptyDir: &corev1.EmptyDirVolumeSource{
			Medium:    corev1.StorageMediumMemory,
			SizeLimit: resource.NewQuantity(16<<20, resource.BinarySI),
		},
	}})
	pod.Containers[0].VolumeMounts = append(pod.Containers[0].VolumeMounts,
		corev1.VolumeMount{Name: "run", MountPath: "/run/subctl"},
		corev1.VolumeMount{Name: "run", MountPath: "/run/wireguard", SubPath: "wireguard"})
}

func fromField(name, path string) corev1.EnvVar {
	return corev1.EnvVar{
		Name:      name,
		ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}},
	}
}
