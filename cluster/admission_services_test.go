package cluster_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cluster"
	"subctl/cluster/clustertest"
	"subctl/internal/kube"
	"subctl/internal/kubetest"
	"subctl/services"
)

// Whoever has the token of the agent of service discovery can make what stands for imported
// Services, with which it redirects no other traffic: neither that of a Service of somebody else,
// nor of the system.
func TestHostileServicesAgent(t *testing.T) {
	server := kubetest.Start(t)
	admin := server.Client(t)
	sub := clustertest.Submariner()
	sub.Spec.ServiceDiscoveryEnabled = true
	sub.Spec.ServiceDiscovery = &v1alpha1.ServiceDiscoverySpec{
		ExportNamespaces: []string{"kube-shared", "shop"}, Imports: []v1alpha1.ImportRule{{Namespaces: []string{"*"}}},
	}
	require.NoError(t, kube.Install(t.Context(), admin, kube.FieldOwner, clustertest.Render(t, sub), nil))
	config := rest.CopyConfig(server.Config())
	config.Impersonate = rest.ImpersonationConfig{
		UserName: kube.ServiceAccountUser(cluster.Namespace, cluster.ServiceDiscoveryName),
		Groups:   []string{"system:serviceaccounts", "system:authenticated"},
	}
	agent, err := client.New(config, client.Options{Scheme: admin.Scheme()})
	require.NoError(t, err)
	for _, name := range []string{"shop", "kube-shared", "openshift-ingress"} {
		require.NoError(t, admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}

	// Without its owner, the derived Service would be collected as garbage.
	owner := &mcsv1alpha1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "api",
			Labels: map[string]string{cluster.ManagedByLabel: cluster.ManagedBy},
		},
		Spec: mcsv1alpha1.ServiceImportSpec{
			Type:  mcsv1alpha1.ClusterSetIP,
			Ports: []mcsv1alpha1.ServicePort{{Port: 80}},
		},
	}
	require.NoError(t, admin.Create(t.Context(), owner))
	service := func(change func(*corev1.Service)) *corev1.Service {
		s := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "shop", Name: "derived-0123456789",
				Labels: map[string]string{
					cluster.ManagedByLabel: cluster.ManagedBy, mcsv1alpha1.LabelServiceName: "web",
				},
				Annotations: map[string]string{corev1.AnnotationTopologyMode: "Auto"},
				OwnerReferences: []metav1.OwnerReference{{
					APIVersion: "multicluster.x-k8s.io/v1alpha1",
					Kind:       "ServiceImport",
					Name:       owner.Name,
					UID:        owner.UID,
				}},
			},
			Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, Ports: []corev1.ServicePort{{Port: 80}}},
		}
		change(s)
		return s
	}
	slice := func(change func(*discoveryv1.EndpointSlice)) *discoveryv1.EndpointSlice {
		s := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "shop", Name: "derived-0123456789-east-0",
				Labels: map[string]string{
					discoveryv1.LabelManagedBy: services.ManagedBy, discoveryv1.LabelServiceName: "derived-0123456789",
				},
			},
			AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.12.0.1"}}},
		}
		change(s)
		return s
	}
	imported := func(change func(*mcsv1alpha1.ServiceImport)) *mcsv1alpha1.ServiceImport {
		i := &mcsv1alpha1.ServiceImport{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "shop", Name: "web", Labels: map[string]string{cluster.ManagedByLabel: cluster.ManagedBy},
			},
			Spec: mcsv1alpha1.ServiceImportSpec{
				Type:  mcsv1alpha1.ClusterSetIP,
				Ports: []mcsv1alpha1.ServicePort{{Port: 80}},
			},
		}
		change(i)
		return i
	}
	page := func(change func(*v1alpha1.ExportedServices)) *v1alpha1.ExportedServices {
		p := &v1alpha1.ExportedServices{
			ObjectMeta: clustertest.In("west-services-0"), Spec: v1alpha1.ExportedServicesSpec{
				ClusterID: "west",
				Pages:     1,
			},
		}
		change(p)
		return p
	}
	lease := func(name string) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: clustertest.In(name)}
	}
	require.Eventually(t, func() bool {
		return agent.Create(t.Context(), service(func(*corev1.Service) {}), client.DryRunAll) == nil &&
			agent.Create(t.Context(), lease("another"), client.DryRunAll) != nil
	}, time.Minute, 50*time.Millisecond, "its rights and the policy are in force")

	for name, o := range map[string]client.Object{
		"a derived Service": service(func(*corev1.Service) {}),
		"in a namespace that the settings name": service(func(s *corev1.Service) {
			s.Namespace = "kube-shared"
		}),
		"a slice":   slice(func(*discoveryv1.EndpointSlice) {}),
		"an import": imported(func(*mcsv1alpha1.ServiceImport) {}),
		"a page":    page(func(*v1alpha1.ExportedServices) {}),
		"its Lease": lease(submarinerv1.ServicesLease),
		"a headless slice": slice(func(s *discoveryv1.EndpointSlice) {
			s.Name = "headless"
			s.Labels[corev1.IsHeadlessService] = ""
		}),
	} {
		require.NoError(t, agent.Create(t.Context(), o), name)
	}
	for name, o := range map[string]client.Object{
		"another name":        service(func(s *corev1.Service) { s.Name = "db" }),
		"another derived one": service(func(s *corev1.Service) { s.Name = "derived-db" }),
		"a selector":          service(func(s *corev1.Service) { s.Spec.Selector = map[string]string{"app": "db"} }),
		"a node port":         service(func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort }),
		"a load balancer":     service(func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeLoadBalancer }),
		"an external name": service(func(s *corev1.Service) {
			s.Spec.Type = corev1.ServiceTypeExternalName
			s.Spec.ExternalName = "evil.example"
		}),
		"external addresses": service(func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"192.0.2.1"} }),
		"a headless one":     service(func(s *corev1.Service) { s.Spec.ClusterIP = "None" }),
		"no owner":           service(func(s *corev1.Service) { s.OwnerReferences = nil }),
		"another owner":      service(func(s *corev1.Service) { s.OwnerReferences[0].Kind = "Pod" }),
		"no label":           service(func(s *corev1.Service) { delete(s.Labels, cluster.ManagedByLabel) }),
		"an annotation": service(func(s *corev1.Service) {
			s.Annotations["external-dns.example/hostname"] = "bank.example"
		}),
		"another label": service(func(s *corev1.Service) {
			s.Labels["service.kubernetes.io/service-proxy-name"] = "x"
		}),
		"in kube-system": service(func(s *corev1.Service) { s.Namespace = "kube-system" }),
		"in OpenShift's": slice(func(s *discoveryv1.EndpointSlice) { s.Namespace = "openshift-ingress" }),
		"in ours":        imported(func(i *mcsv1alpha1.ServiceImport) { i.Namespace = cluster.Namespace }),
		"a slice of others": slice(func(s *discoveryv1.EndpointSlice) {
			s.Labels[discoveryv1.LabelManagedBy] = "endpointslice-controller.k8s.io"
		}),
		"endpoints of another Service": slice(func(s *discoveryv1.EndpointSlice) {
			s.Labels[discoveryv1.LabelServiceName] = "db"
		}),
		"endpoints of a headless Service": slice(func(s *discoveryv1.EndpointSlice) {
			s.Labels[discoveryv1.LabelServiceName] = "db"
			s.Labels[corev1.IsHeadlessService] = ""
		}),
		"endpoints of a Service of a user": slice(func(s *discoveryv1.EndpointSlice) {
			s.Labels[discoveryv1.LabelServiceName] = "derived-db"
		}),
		"endpoints of no Service": slice(func(s *discoveryv1.EndpointSlice) {
			delete(s.Labels, discoveryv1.LabelServiceName)
		}),
		"an import with a finalizer": imported(func(i *mcsv1alpha1.ServiceImport) {
			i.Finalizers = []string{"example.com/x"}
		}),
		"a slice with a finalizer": slice(func(s *discoveryv1.EndpointSlice) {
			s.Finalizers = []string{"example.com/x"}
		}),
		"an endpoint on a node":   slice(func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].NodeName = new("n1") }),
		"an import without label": imported(func(i *mcsv1alpha1.ServiceImport) { i.Labels = nil }),
		"another cluster's page":  page(func(p *v1alpha1.ExportedServices) { p.Spec.ClusterID = "east" }),
		"another name of a page":  page(func(p *v1alpha1.ExportedServices) { p.Name = "east-services-0" }),
		"a copy": page(func(p *v1alpha1.ExportedServices) {
			p.Labels = map[string]string{submarinerv1.ClusterIDLabel: "east"}
		}),
		"another Lease": lease(submarinerv1.GatewayLease),
	} {
		err := agent.Create(t.Context(), o, client.DryRunAll)
		require.True(t, apierrors.IsForbidden(err), "%s: %v", name, err)
	}
	testHostileServicesChanges(t, admin, agent)
}

// testHostileServicesChanges tries to change and delete what others have made.
func testHostileServicesChanges(t *testing.T, admin, agent client.Client) {
	db := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}
	theirs := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "derived-9876543210"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}
	endpoints := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "db-1",
			Labels: map[string]string{discoveryv1.LabelServiceName: "db"},
		},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{},
	}
	foreign := &mcsv1alpha1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "foreign"},
		Spec: mcsv1alpha1.ServiceImportSpec{
			Type:  mcsv1alpha1.Headless,
			Ports: []mcsv1alpha1.ServicePort{{Port: 80}},
		},
	}
	copied := &v1alpha1.ExportedServices{
		ObjectMeta: clustertest.In("east-services-0"), Spec: v1alpha1.ExportedServicesSpec{ClusterID: "east", Pages: 1},
	}
	export := &mcsv1alpha1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}}
	claim := client.RawPatch("application/merge-patch+json", []byte(
		`{"metadata":{"labels":{"app.kubernetes.io/managed-by":"subctl","multicluster.kubernetes.io/service-name":"x",`+
			`"endpointslice.kubernetes.io/managed-by":"service-discovery.submariner.io"}}}`))
	for _, o := range []client.Object{db, theirs, endpoints, foreign, copied} {
		require.NoError(t, admin.Create(t.Context(), o))
		require.True(t, apierrors.IsForbidden(agent.Delete(t.Context(), o, client.DryRunAll)), "%T %s", o, o.GetName())
		err := agent.Patch(t.Context(), o.DeepCopyObject().(client.Object), claim, client.DryRunAll)
		require.True(t, apierrors.IsForbidden(err), "%T %s: %v", o, o.GetName(), err)
	}
	require.NoError(t, admin.Create(t.Context(), export))
	conditions := func(kind string) error {
		e := export.DeepCopy()
		e.Status.Conditions = []metav1.Condition{{
			Type: kind, Status: metav1.ConditionTrue, Reason: "Valid", LastTransitionTime: metav1.Now(),
		}}
		return agent.Status().Update(t.Context(), e, client.DryRunAll)
	}
	for _, kind := range []string{"Valid", "Ready", "Conflict", services.ConditionPublished} {
		require.NoError(t, conditions(kind))
	}
	require.True(t, apierrors.IsForbidden(conditions("Theirs")))
	require.True(t, apierrors.IsForbidden(agent.Delete(t.Context(), export, client.DryRunAll)))
	own := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "derived-0123456789"}}
	require.NoError(t, agent.Delete(t.Context(), own))
}
