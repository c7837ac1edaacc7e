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
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/dataplane"
	"subctl/internal/kube"
)

// GlobalnetMemory is the memory limit of the globalnet agent, in bytes. With 65,536 addresses, the
// default size of a network, and long names it uses up to 190 MiB. The rest is for the moment in
// which an API server that has restarted is read anew, and for what users of namespaces write.
const GlobalnetMemory = 512 << 20

// GlobalnetGC is the value of GOGC of the globalnet agent, in percent: nearly all of its memory is
// objects of the cluster, which stay. Collecting the rest more often takes little time, as the
// agent is mostly idle.
const GlobalnetGC = 25

// Everything returns all objects that any cluster may hold, as Render does: settings matter only
// for their names.
func Everything() ([]client.Object, error) { return Platform{}.Everything() }

// Everything returns all objects that a cluster on p may hold.
func (p Platform) Everything() ([]client.Object, error) {
	return p.Render(&v1alpha1.Submariner{
		Spec: v1alpha1.SubmarinerSpec{
			GlobalCIDR: "242.0.0.0/8", Gateways: new(int32(1)), ServiceDiscoveryEnabled: true,
		},
	})
}

// globalnet returns what a cluster with a global network holds in addition.
func globalnet(sub *v1alpha1.Submariner, p Platform) []client.Object {
	memory := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: submarinerv1.GlobalnetMemory, Namespace: Namespace, Labels: ours("")},
	}
	out := slices.Concat([]client.Object{memory}, annotationPolicy(),
		account(GlobalnetName, append(globalnetRules(), p.Use(SCCNonRoot)...), globalnetClusterRules()))
	return append(out, globalnetAgent(sub))
}

// globalnetRules returns the rights of the globalnet agent in Namespace: its lease, its memory and
// Events.
func globalnetRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		rule([]string{"submariner.io"}, []string{"submariners"}, read...),
		byName(rule([]string{""}, []string{"configmaps"}, "get", "update"), submarinerv1.GlobalnetMemory),
		rule([]string{""}, []string{"configmaps"}, "create"),
		byName(rule([]string{"coordination.k8s.io"}, []string{"leases"}, "get", "update"), submarinerv1.GlobalnetLease),
		rule([]string{"coordination.k8s.io"}, []string{"leases"}, "create"),
	}
}

// globalnetClusterRules returns its rights in all namespaces: to read what has an address, and to
// write the objects that request addresses. It annotates pods and Services by writing their
// statuses, in which it may change nothing else: see annotationPolicy. Whoever may patch a pod may
// change its image.
func globalnetClusterRules() []rbacv1.PolicyRule {
	const mcs = "multicluster.x-k8s.io"
	return []rbacv1.PolicyRule{
		rule([]string{""}, []string{"namespaces", "nodes", "pods", "services"}, read...),
		rule([]string{""}, []string{"pods/status", "services/status"}, "patch"),
		rule([]string{"discovery.k8s.io"}, []string{"endpointslices"}, read...),
		rule([]string{mcs}, []string{"serviceexports"}, read...),
		rule([]string{mcs}, []string{"serviceexports/status"}, "update"),
		rule(
			[]string{"submariner.io"},
			[]string{"clusterglobalegressips", "globalegressips", "globalingressips"},
			read...),
		rule([]string{"submariner.io"}, []string{"clusterglobalegressips", "globalingressips"}, "create", "delete",
			"patch"),
		rule([]string{"submariner.io"},
			[]string{"clusterglobalegressips/status", "globalegressips/status", "globalingressips/status"}, "update"),
		events,
	}
}

// globalnetAgent returns the Deployment of the agent that allocates global addresses. It needs
// neither the network of its node nor any capability. Its pod may run on any node, whatever its
// taints: without it the traffic continues, but nobody gets a new address.
func globalnetAgent(sub *v1alpha1.Submariner) *appsv1.Deployment {
	d := clusterAgent(sub, GlobalnetName, globalnetComponent, "globalnet", dataplane.GlobalnetMetricsPort,
		dataplane.GlobalnetProbePort, GlobalnetMemory)
	d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType} // one agent at a time
	c := &d.Spec.Template.Spec.Containers[0]
	c.Resources.Requests[corev1.ResourceMemory] = resource.MustParse("64Mi")
	c.Env = append(c.Env, corev1.EnvVar{Name: "GOGC", Value: strconv.Itoa(GlobalnetGC)})
	return d
}

// annotationPolicy returns the policy of the globalnet agent, which annotates pods and Services by
// writing their statuses: it may change nothing but that annotation. The API server itself keeps it
// from changing a spec, or the owners of a pod, in this way.
func annotationPolicy() []client.Object {
	all := []string{sameEntries("metadata.?annotations", submarinerv1.GlobalIPAnnotation)}
	for _, field := range []string{"metadata.?labels", "metadata.?finalizers", "metadata.?ownerReferences", "?status"} {
		all = append(all, fmt.Sprintf("object.%[1]s == oldObject.%[1]s", field))
	}
	objs := kube.AdmissionPolicy(GlobalnetName, &admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{
			kube.AdmissionRule("", []admissionv1.OperationType{admissionv1.Update}, "pods/status", "services/status"),
		}},
		MatchConditions: []admissionv1.MatchCondition{{
			Name: "the-agent",
			Expression: fmt.Sprintf("request.userInfo.username == '%s'",
				kube.ServiceAccountUser(Namespace, GlobalnetName)),
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
