package cluster

import (
	"fmt"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcscrd "sigs.k8s.io/mcs-api/config/crd"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	"sigs.k8s.io/yaml"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/dataplane"
)

// ServicesMemory is the memory limit of the agent of service discovery, in bytes, with 10,000
// imported Services.
const ServicesMemory = 512 << 20

// ServicesGC is the value of GOGC of the agent of service discovery, in percent: most of its memory
// is objects of the cluster, which stay. With 100, it had 265 MiB with nearly 10,000 imported
// Services.
const ServicesGC = 50

// ServiceExports returns the CRD of ServiceExports of the Multi-Cluster Services API. A cluster may
// have it from others, who keep it.
func ServiceExports() (*apiextensionsv1.CustomResourceDefinition, error) {
	return servicesDefinition(mcscrd.ServiceExportCRD)
}

// ServiceImports returns the CRD of ServiceImports of the Multi-Cluster Services API. A cluster may
// have it from others, who keep it.
func ServiceImports() (*apiextensionsv1.CustomResourceDefinition, error) {
	return servicesDefinition(mcscrd.ServiceImportCRD)
}

func servicesDefinition(text []byte) (*apiextensionsv1.CustomResourceDefinition, error) {
	def := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(text, def); err != nil {
		return nil, fmt.Errorf("reading an embedded definition of the Multi-Cluster Services API: %w", err)
	}
	def.Labels = merged(def.Labels, ours(""))
	return def, nil
}

// IsServicesDefinition reports whether name is the name of a CRD of the Multi-Cluster Services API,
// which a cluster may have from others.
func IsServicesDefinition(name string) bool {
	return name == mcsv1alpha1.ServiceExportFullName || name == mcsv1alpha1.ServiceImportFullName
}

// servicesDefinitions returns the CRDs of the Multi-Cluster Services API that a cluster needs.
func servicesDefinitions(sub *v1alpha1.Submariner) ([]client.Object, error) {
	if sub.Spec.GlobalCIDR == "" && !sub.Spec.ServiceDiscoveryEnabled {
		return nil, nil
	}
	exports, err := ServiceExports()
	if err != nil || !sub.Spec.ServiceDiscoveryEnabled {
		return []client.Object{exports}, err
	}
	imports, err := ServiceImports()
	return []client.Object{exports, imports}, err
}

// serviceDiscovery returns what a cluster with service discovery holds in addition.
func serviceDiscovery(sub *v1alpha1.Submariner, p Platform) []client.Object {
	out := account(ServiceDiscoveryName, append(servicesRules(), p.Use(SCCNonRoot)...), servicesClusterRules())
	out = append(out, servicesPolicy(sub)...)
	return append(append(out, servicesAgent(sub)), dnsServer(sub, p)...)
}

// servicesRules returns the rights of the agent of service discovery in Namespace: its lease, and
// the pages of what this cluster exports.
func servicesRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		rule([]string{"submariner.io"}, []string{"clusters", "exportedservices", "gateways", "submariners"}, read...),
		rule([]string{"submariner.io"}, []string{"exportedservices"}, "create", "delete", "patch"),
		byName(rule([]string{"coordination.k8s.io"}, []string{"leases"}, "get", "update"), submarinerv1.ServicesLease),
		rule([]string{"coordination.k8s.io"}, []string{"leases"}, "create"),
	}
}

// servicesClusterRules returns its rights in all namespaces: to read what is exported, and to write
// what is imported, within the bounds of servicesPolicy. OpenShift asks for two further rights: for
// EndpointSlices with addresses of pods, and for objects whose owner they keep from being deleted.
func servicesClusterRules() []rbacv1.PolicyRule {
	const mcs = mcsv1alpha1.GroupName
	change := []string{"create", "delete", "patch"}
	return []rbacv1.PolicyRule{
		rule([]string{""}, []string{"namespaces", "nodes", "services"}, read...),
		rule([]string{""}, []string{"services"}, change...),
		rule([]string{"discovery.k8s.io"}, []string{"endpointslices"}, slices.Concat(change, read)...),
		rule([]string{"discovery.k8s.io"}, []string{"endpointslices/restricted"}, "create"),
		rule([]string{mcs}, []string{"serviceexports", "serviceimports"}, read...),
		rule([]string{mcs}, []string{"serviceimports"}, change...),
		rule([]string{mcs}, []string{"serviceexports/status", "serviceimports/status", "serviceimports/finalizers"},
			"update"),
		rule([]string{"submariner.io"}, []string{"globalingressips"}, read...),
		events,
	}
}

// servicesAgent returns the Deployment of the agent of service discovery. It needs neither the
// network of its node nor any capability. Without it, imported Services go on working, and follow
// no changes.
func servicesAgent(sub *v1alpha1.Submariner) *appsv1.Deployment {
	d := clusterAgent(sub, ServiceDiscoveryName, servicesComponent, "services", dataplane.ServicesMetricsPort,
		dataplane.ServicesProbePort, ServicesMemory)
	d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType} // one agent at a time
	c := &d.Spec.Template.Spec.Containers[0]
	c.Resources.Requests[corev1.ResourceMemory] = resource.MustParse("64Mi")
	c.Env = append(c.Env, corev1.EnvVar{Name: "GOGC", Value: strconv.Itoa(ServicesGC)})
	return d
}
