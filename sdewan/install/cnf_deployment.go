package install

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"subctl/cluster"
	"subctl/sdewan"
)

// Where the pod of a CNF has its files.
const (
	podInfo     = "/etc/podinfo"
	accountPath = "/etc/sdewan/account"
	certPath    = "/etc/sdewan/tls"
	statePath   = "/var/lib/sdewan"
)

// Deployment returns the Deployment of the CNF. It depends only on c.
//
// The pods configure only their own network namespace: they are not privileged, and need NET_ADMIN
// for it, NET_RAW for pings and ARP, and NET_BIND_SERVICE for ports 80 and 443. /dev/net/tun is for
// IPsec on nodes whose kernel has no ESP.
func (c CNF) Deployment() (*appsv1.Deployment, error) {
	annotations, err := c.annotations()
	if err != nil {
		return nil, err
	}
	labels := map[string]string{sdewan.PurposeLabel: c.Purpose}
	pod := map[string]string{
		sdewan.PurposeLabel: c.Purpose,
		sdewan.AccountLabel: c.AccountSecret,
		sdewan.CertLabel:    c.CertSecret,
	}
	args := []string{
		"agent",
		"cnf",
		"--networks-file=" + podInfo + "/networks",
		"--password-file=" + accountPath + "/password",
		"--tls-cert=" + certPath + "/tls.crt",
		"--tls-key=" + certPath + "/tls.key",
		"--https=$(POD_IP):443",
		"--http=$(POD_IP):80",
		"--state-file=" + statePath + "/state.json",
	}
	info := []corev1.DownwardAPIVolumeFile{annotationFile("networks", sdewan.NetworksAnnotation)}
	if len(c.Uplinks) > 0 {
		args = append(args, "--uplinks-file="+podInfo+"/uplinks")
		info = append(info, annotationFile("uplinks", sdewan.UplinksAnnotation))
	}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: c.Name, Namespace: c.Namespace, Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: &c.Replicas,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{sdewan.PurposeLabel: c.Purpose}},
			// Two pods with one address would take each other's packets.
			Strategy: c.strategy(),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: pod, Annotations: annotations},
				Spec: corev1.PodSpec{
					AutomountServiceAccountToken: new(false), // a CNF speaks with no API server
					EnableServiceLinks:           new(false),
					NodeSelector:                 c.NodeSelector,
					PriorityClassName:            c.PriorityClass,
					Tolerations:                  lostNode(),
					TopologySpreadConstraints:    c.spread(),
					// of which the agent takes at most 4 to end its tunnels, after the step that it
					// is at
					TerminationGracePeriodSeconds: new(int64(10)),
					SecurityContext: &corev1.PodSecurityContext{
						SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
					},
					Containers: []corev1.Container{{
						Name: "sdewan", Image: c.Image, ImagePullPolicy: corev1.PullIfNotPresent,
						Command: []string{"subctl"}, Args: args,
						// The REST API has only the address in the cluster's network: no uplink
						// leads to it.
						Env: []corev1.EnvVar{
							{
								Name: "POD_IP",
								ValueFrom: &corev1.EnvVarSource{
									FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"},
								},
							},
						},
						Ports: []corev1.ContainerPort{
							{Name: "https", ContainerPort: 443},
							{Name: "http", ContainerPort: 80},
						},
						ReadinessProbe: &corev1.Probe{
							ProbeHandler: corev1.ProbeHandler{
								HTTPGet: &corev1.HTTPGetAction{
									Path:   "/",
									Port:   intstr.FromInt32(80),
									Scheme: corev1.URISchemeHTTP,
								},
							},
							InitialDelaySeconds: 5,
							PeriodSeconds:       5,
							FailureThreshold:    5,
							SuccessThreshold:    1,
							TimeoutSeconds:      1,
						},
						Resources: corev1.ResourceRequirements{
							Requests: corev1.ResourceList{
								corev1.ResourceCPU:    resource.MustParse("10m"),
								corev1.ResourceMemory: resource.MustParse("32Mi"),
							},
							Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("512Mi")},
						},
						SecurityContext: &corev1.SecurityContext{
							RunAsUser: new(
								int64(0)),
							AllowPrivilegeEscalation: new(false),
							ReadOnlyRootFilesystem:   new(true),
							Capabilities: &corev1.Capabilities{
								Drop: []corev1.Capability{"ALL"},
								Add:  []corev1.Capability{"NET_ADMIN", "NET_BIND_SERVICE", "NET_RAW"},
							},
						},
						VolumeMounts: []corev1.VolumeMount{
							{Name: "podinfo", MountPath: podInfo, ReadOnly: true},
							{Name: "account", MountPath: accountPath, ReadOnly: true},
							{Name: "tls", MountPath: certPath, ReadOnly: true},
							{Name: "dev-net", MountPath: "/dev/net", ReadOnly: true},
							{Name: "run", MountPath: "/run"},
							{Name: "state", MountPath: statePath},
							{Name: "tmp", MountPath: "/tmp"},
						},
					}},
					Volumes: []corev1.Volume{
						{
							Name: "podinfo",
							VolumeSource: corev1.VolumeSource{
								DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: info},
							},
						},
						{
							Name: "account",
							VolumeSource: corev1.VolumeSource{
								Secret: &corev1.SecretVolumeSource{
									SecretName:  c.AccountSecret,
									DefaultMode: new(int32(0o400)),
								},
							},
						},
						{
							Name: "tls",
							VolumeSource: corev1.VolumeSource{
								Secret: &corev1.SecretVolumeSource{
									SecretName:  c.CertSecret,
									DefaultMode: new(int32(0o400)),
								},
							},
						},
						{
							Name: "dev-net",
							VolumeSource: corev1.VolumeSource{
								HostPath: &corev1.HostPathVolumeSource{
									Path: "/dev/net",
									Type: new(corev1.HostPathDirectoryOrCreate),
								},
							},
						},
						memory("run", 16<<20), memory("tmp", 16<<20),
						// The network of a pod outlives its containers. One that restarts must not
						// open firewalls and tunnels until the controller has configured it again,
						// so it finds what it held.
						memory("state", 64<<20),
					},
				},
			},
		},
	}
	d.Spec.Template.Spec.Affinity = cluster.SuitedNodes() // a cordoned node gets no CNF: it is the user's workload
	return d, nil
}

// lostNodeSeconds is for how long the pods of a CNF stay on a node that the cluster has lost. The
// default, 5 minutes, is for pods that a site can wait for.
const lostNodeSeconds = 10

// lostNode returns tolerations by which pods of a lost node are replaced soon.
func lostNode() (out []corev1.Toleration) {
	for _, taint := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		out = append(out, corev1.Toleration{
			Key:               taint,
			Operator:          corev1.TolerationOpExists,
			Effect:            corev1.TaintEffectNoExecute,
			TolerationSeconds: new(int64(lostNodeSeconds)),
		})
	}
	return out
}

// spread puts pods on different nodes, if there are several pods and nodes.
func (c CNF) spread() []corev1.TopologySpreadConstraint {
	if c.Replicas < 2 {
		return nil
	}
	return []corev1.TopologySpreadConstraint{{
		MaxSkew:           1,
		TopologyKey:       corev1.LabelHostname,
		WhenUnsatisfiable: corev1.ScheduleAnyway,
		LabelSelector:     &metav1.LabelSelector{MatchLabels: map[string]string{sdewan.PurposeLabel: c.Purpose}},
	}}
}

// Disruptions returns the PodDisruptionBudget of a CNF with several pods: nodes are drained one
// after the other. It is nil for a CNF with one pod, which a budget could only keep from being
// moved at all.
func (c CNF) Disruptions() *policyv1.PodDisruptionBudget {
	if c.Replicas < 2 {
		return nil
	}
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{
			Name:      c.Name,
			Namespace: c.Namespace,
			Labels:    map[string]string{sdewan.PurposeLabel: c.Purpose},
		},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: new(intstr.FromInt32(1)),
			Selector:       &metav1.LabelSelector{MatchLabels: map[string]string{sdewan.PurposeLabel: c.Purpose}},
		},
	}
}

// strategy replaces all pods at once if one of them has a fixed address.
func (c CNF) strategy() appsv1.DeploymentStrategy {
	if slices.ContainsFunc(c.Networks, func(n Network) bool { return n.Address.IsValid() }) {
		return appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
	}
	quarter := intstr.FromString("25%")
	return appsv1.DeploymentStrategy{
		Type:          appsv1.RollingUpdateDeploymentStrategyType,
		RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &quarter, MaxUnavailable: &quarter},
	}
}

// memory returns a volume in memory, of a size in bytes: sockets, and files with keys, which end
// with the pod.
func memory(name string, size int64) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		EmptyDir: &corev1.EmptyDirVolumeSource{
			Medium:    corev1.StorageMediumMemory,
			SizeLimit: resource.NewQuantity(size, resource.BinarySI),
		},
	}}
}

func annotationFile(name, annotation string) corev1.DownwardAPIVolumeFile {
	return corev1.DownwardAPIVolumeFile{
		Path:     name,
		FieldRef: &corev1.ObjectFieldSelector{FieldPath: fmt.Sprintf("metadata.annotations['%s']", annotation)},
	}
}
