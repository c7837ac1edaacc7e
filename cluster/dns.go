package cluster

import (
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"subctl/api/submariner/v1alpha1"
	"subctl/dataplane"
)

// DNSMemory is the memory limit of a DNS server of imported Services, in bytes.
const DNSMemory = 128 << 20

// dnsReplicas is the number of DNS servers: names resolve while the node of one fails.
const dnsReplicas = 2

// dnsServer returns the DNS servers of imported Services, and the Service at whose address the
// cluster's DNS asks them. The address stays as long as the Service does.
func dnsServer(sub *v1alpha1.Submariner, p Platform) []client.Object {
	meta := metav1.ObjectMeta{Name: DNSName, Namespace: Namespace, Labels: ours(DNSName)}
	pods := map[string]string{"app": DNSName}
	port := func(name string, protocol corev1.Protocol) corev1.ServicePort {
		return corev1.ServicePort{
			Name: name, Protocol: protocol, Port: 53, TargetPort: intstr.FromInt32(dataplane.DNSPort),
		}
	}
	out := account(DNSName, p.Use(SCCNonRoot), dnsRules())
	return append(out,
		&corev1.Service{ObjectMeta: *meta.DeepCopy(), Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, Selector: pods,
			Ports: []corev1.ServicePort{port("dns", corev1.ProtocolUDP), port("dns-tcp", corev1.ProtocolTCP)},
		}},
		&policyv1.PodDisruptionBudget{ObjectMeta: *meta.DeepCopy(), Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: pods},
		}},
		dnsDeployment(sub),
	)
}

// dnsRules returns the rights of the DNS servers: to read what they answer from.
func dnsRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		rule([]string{mcsv1alpha1.GroupName}, []string{"serviceimports"}, read...),
		rule([]string{"discovery.k8s.io"}, []string{"endpointslices"}, read...),
	}
}

// dnsDeployment returns the Deployment of the DNS servers. A new one must answer before an old one
// ends.
func dnsDeployment(sub *v1alpha1.Submariner) *appsv1.Deployment {
	d := clusterAgent(sub, DNSName, dnsComponent, "dns", dataplane.DNSMetricsPort, dataplane.DNSProbePort, DNSMemory)
	d.Spec.Replicas = new(int32(dnsReplicas))
	d.Spec.Strategy = appsv1.DeploymentStrategy{
		Type: appsv1.RollingUpdateDeploymentStrategyType,
		RollingUpdate: &appsv1.RollingUpdateDeployment{
			MaxUnavailable: new(intstr.FromInt32(0)), MaxSurge: new(intstr.FromInt32(1)),
		},
	}
	c := &d.Spec.Template.Spec.Containers[0]
	c.Args = []string{"agent", "dns", "--cluster-id", sub.Spec.ClusterID}
	if s := sub.Spec.ServiceDiscovery; s != nil && s.ClusterNames {
		c.Args = append(c.Args, "--cluster-names")
	}
	c.Args = append(c.Args, "--probe-address", ":"+strconv.Itoa(dataplane.DNSProbePort))
	c.Env = c.Env[2:] // not the names of its node and pod
	c.Ports = append(c.Ports,
		corev1.ContainerPort{Name: "dns", ContainerPort: dataplane.DNSPort, Protocol: corev1.ProtocolUDP},
		corev1.ContainerPort{Name: "dns-tcp", ContainerPort: dataplane.DNSPort, Protocol: corev1.ProtocolTCP})
	c.ReadinessProbe = &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
			Path: "/readyz", Port: intstr.FromInt32(dataplane.DNSProbePort),
		}},
		PeriodSeconds: 2, FailureThreshold: 2, TimeoutSeconds: 2, // less than a server that leaves goes on answering
	}
	return d
}
