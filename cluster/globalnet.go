package cluster

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcscrd "sigs.k8s.io/mcs-api/config/crd"
	"sigs.k8s.io/yaml"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/dataplane"
	"subctl/internal/kube"
)

// GlobalnetMemory is the memory limit of the globalnet agent, in bytes. With 65,536 addresses, the default size of a network, and long
// names it uses up to 190 MiB. The rest is for the moment in which an API server that has restarted is read anew, and for what users of namespaces write.
const GlobalnetMemory = 512 << 20

// GlobalnetGC is the value of GOGC of the globalnet agent, in percent: nearly all of its memory is objects of the cluster, which stay. Collecting the rest
// more often takes little time, as the agent is mostly idle.
const GlobalnetGC = 25

// Everything returns all objects that any cluster may hold, as Render does: settings matter only for their names.
func Everything() ([]client.Object, error) { return Platform{}.Everything() }

// Everything returns all objects that a cluster on p may hold.
func (p Platform) Everything() ([]client.Object, error) {
	return p.Render(&v1alpha1.Submariner{Spec: v1alpha1.SubmarinerSpec{GlobalCIDR: "242.0.0.0/8"}})
}

// ServiceExports returns the CRD of the Multi-Cluster Services API. A cluster may have it from others, who keep it.
func ServiceExports() (*apiextensionsv1.CustomResourceDefinition, error) {
	def := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(mcscrd.ServiceExportCRD, def); err != nil {
		return nil, fmt.Errorf("reading the embedded definition of ServiceExports: %w", err)
	}
	def.Labels = merged(def.Labels, ours(""))
	return def, nil
}

// globalnet returns what a cluster with a global network holds in addition.
func globalnet(sub *v1alpha1.Submariner, p Platform) ([]client.Object, error) {
	export, err := ServiceExports()
	if err != nil {
		return nil, err
	}
	memory := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: submarinerv1.GlobalnetMemory, Namespace: Namespace, Labels: ours("")}}
	out := slices.Concat([]client.Object{export, memory}, annotationPolicy(), account(GlobalnetName, append(globalnetRules(), p.Use(SCCNonRoot)...), globalnetClusterRules()))
	return append(out, globalnetAgent(sub)), nil
}

// globalnetRules returns the rights of the globalnet agent in Namespace: its lease, its memory and Events.
func globalnetRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		rule([]string{"submariner.io"}, []string{"submariners"}, read...),
		byName(rule([]string{""}, []string{"configmaps"}, "get", "update"), submarinerv1.GlobalnetMemory),
		rule([]string{""}, []string{"configmaps"}, "create"),
		byName(rule([]string{"coordination.k8s.io"}, []string{"leases"}, "get", "update"), submarinerv1.GlobalnetLease),
		rule([]string{"coordination.k8s.io"}, []string{"leases"}, "create"),
	}
}

// globalnetClusterRules returns its rights in all namespaces: to read what has an address, and to write the objects
// that request addresses. It annotates pods and Services by writing their statuses, in which it may change nothing else: see
// annotationPolicy. Whoever may patch a pod may change its image.
func globalnetClusterRules() []rbacv1.PolicyRule {
	const mcs = "multicluster.x-k8s.io"
	return []rbacv1.PolicyRule{
		rule([]string{""}, []string{"namespaces", "nodes", "pods", "services"}, read...),
		rule([]string{""}, []string{"pods/status", "services/status"}, "patch"),
		rule([]string{"discovery.k8s.io"}, []string{"endpointslices"}, read...),
		rule([]string{mcs}, []string{"serviceexports"}, read...),
		rule([]string{mcs}, []string{"serviceexports/status"}, "update"),
		rule([]string{"submariner.io"}, []string{"clusterglobalegressips", "globalegressips", "globalingressips"}, read...),
		rule([]string{"submariner.io"}, []string{"clusterglobalegressips", "globalingressips"}, "create", "delete", "patch"),
		rule([]string{"submariner.io"}, []string{"clusterglobalegressips/status", "globalegressips/status", "globalingressips/status"}, "update"),
		events,
	}
}

// globalnetAgent returns the Deployment of the agent that allocates global addresses. It needs neither the
// network of its node nor any capability. Its pod may run on any node, whatever its taints: without it the traffic
// continues, but nobody gets a new address.
func globalnetAgent(sub *v1alpha1.Submariner) *appsv1.Deployment {
	const metrics, probes = dataplane.GlobalnetMetricsPort, dataplane.GlobalnetProbePort
	probe := func(path string, period, failures int32) *corev1.Probe {
		return &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(probes)}},
			PeriodSeconds: period, FailureThreshold: failures, TimeoutSeconds: 3,
		}
	}
	component := globalnetComponent
	if sub.Spec.ImageOverrides[component] == "" {
		component = gatewayComponent // one image has all agents
	}
	c := corev1.Container{
		Name: GlobalnetName, Image: Image(sub, component), ImagePullPolicy: corev1.PullIfNotPresent,
		Command: []string{"subctl"},
		Args:    []string{"agent", "globalnet", "--node", "$(NODE_NAME)", "--probe-address", ":" + strconv.Itoa(probes)},
		Env:     []corev1.EnvVar{fromField("NODE_NAME", "spec.nodeName")},
		Ports:   []corev1.ContainerPort{{Name: "metrics", ContainerPort: metrics, Protocol: corev1.ProtocolTCP}},
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("64Mi"),
		}},
		LivenessProbe: probe("/healthz", 10, 6),
		SecurityContext: &corev1.SecurityContext{
			RunAsNonRoot: new(true), RunAsUser: new(int64(65532)), AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
	}
	limitMemory(&c, GlobalnetMemory)
	c.Env = append(c.Env, corev1.EnvVar{Name: "GOGC", Value: strconv.Itoa(GlobalnetGC)})
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: GlobalnetName, Namespace: Namespace, Labels: ours(GlobalnetName)},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(1)),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": GlobalnetName}},
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}, // one agent at a time
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: ours(GlobalnetName)},
				Spec: corev1.PodSpec{
					ServiceAccountName: GlobalnetName, AutomountServiceAccountToken: new(true), EnableServiceLinks: new(false),
					PriorityClassName: clusterCritical, TerminationGracePeriodSeconds: new(int64(graceSeconds)),
					SecurityContext: &corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
					Containers:      []corev1.Container{c},
				},
			},
		},
	}
	PlaceDeployment(&d.Spec.Template)
	return d
}

// annotationPolicy returns the policy of the globalnet agent, which annotates pods and Services by writing their statuses: it may change nothing
// but that annotation. The API server itself keeps it from changing a spec, or the owners of a pod, in this way.
func annotationPolicy() []client.Object {
	const is, was = "object.metadata.?annotations.orValue({})", "oldObject.metadata.?annotations.orValue({})"
	others := func(in, as string) string {
		return fmt.Sprintf("%[1]s.all(k, k == '%[3]s' || %[1]s[?k] == %[2]s[?k])", in, as, submarinerv1.GlobalIPAnnotation)
	}
	all := []string{others(is, was), others(was, is)}
	for _, field := range []string{"metadata.?labels", "metadata.?finalizers", "metadata.?ownerReferences", "?status"} {
		all = append(all, fmt.Sprintf("object.%[1]s == oldObject.%[1]s", field))
	}
	objs := kube.AdmissionPolicy(GlobalnetName, &admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{
			kube.AdmissionRule("", []admissionv1.OperationType{admissionv1.Update}, "pods/status", "services/status"),
		}},
		MatchConditions: []admissionv1.MatchCondition{{
			Name:       "the-agent",
			Expression: fmt.Sprintf("request.userInfo.username == '%s'", kube.ServiceAccountUser(Namespace, GlobalnetName)),
		}},
		Validations: []admissionv1.Validation{{
			Expression: strings.Join(all, " && "),
			Message:    "the globalnet agent may change nothing but the annotation " + submarinerv1.GlobalIPAnnotation,
		}},
	})
	for _, o := range objs {
		o.SetLabels(ours(GlobalnetName))
	}
	return objs
}
