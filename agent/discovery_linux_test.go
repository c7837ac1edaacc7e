package agent

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cluster"
	"subctl/cluster/clustertest"
	"subctl/services"
	"subctl/services/discoverer"
)

// discoveryWorld is an API server of cluster "west" with service discovery, and namespace "shop".
type discoveryWorld struct {
	client.Client
	t      *testing.T
	config *rest.Config
}

func newDiscoveryWorld(t *testing.T) *discoveryWorld {
	t.Helper()
	sub := clustertest.Submariner()
	sub.Spec.ServiceDiscoveryEnabled = true
	sub.Spec.ServiceCIDR = "10.96.0.0/16"
	admin, config := agentServer(t, sub, cluster.ServiceDiscoveryName)
	w := &discoveryWorld{admin, t, config}
	w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	return w
}

func (w *discoveryWorld) create(o client.Object) {
	w.t.Helper()
	require.NoError(w.t, w.Create(w.t.Context(), o))
}

func (w *discoveryWorld) run() (stop func()) {
	return runAgent(w.t, Options{
		Role: discoverer.Role(), Kernel: NoKernel(), Node: "node", MetricsAddr: "127.0.0.1:0", ProbeAddr: "127.0.0.1:0",
		Config: w.config, Log: slog.New(slog.NewTextHandler(w.t.Output(), nil)),
	})
}

// has waits until an object is there for which is holds.
func has[T client.Object](w *discoveryWorld, into T, namespace, name string, is func(T) bool) T {
	w.t.Helper()
	key := client.ObjectKey{Namespace: namespace, Name: name}
	require.Eventually(w.t, func() bool {
		return w.Get(w.t.Context(), key, into) == nil && is(into)
	}, 20*time.Second, 20*time.Millisecond, "%T %s: %+v", into, key, into)
	return into
}

// gone waits until an object is not there any more.
func (w *discoveryWorld) gone(o client.Object) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		return client.IgnoreNotFound(w.Get(w.t.Context(), client.ObjectKeyFromObject(o), o)) == nil &&
			o.GetUID() == "" ||
			w.Get(w.t.Context(), client.ObjectKeyFromObject(o), o) != nil
	}, 20*time.Second, 20*time.Millisecond, "%T %s", o, client.ObjectKeyFromObject(o))
}

// member makes what a speaker copies of another cluster: its Cluster, and its page.
func (w *discoveryWorld) member(id string, number int, records ...v1alpha1.ExportedService) *v1alpha1.ExportedServices {
	w.t.Helper()
	label := map[string]string{submarinerv1.ClusterIDLabel: id}
	w.create(&submarinerv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: id, Labels: label},
		Spec: submarinerv1.ClusterSpec{
			ClusterID: id, ClusterCIDR: []string{fmt.Sprintf("10.%d.0.0/16", number)},
			ServiceCIDR: []string{fmt.Sprintf("10.%d.0.0/16", 100+number)}, GlobalCIDR: []string{},
		},
	})
	page := &v1alpha1.ExportedServices{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cluster.Namespace, Name: v1alpha1.ExportedServicesName(id, 0), Labels: label,
		},
		Spec: v1alpha1.ExportedServicesSpec{ClusterID: id, Pages: 1, Services: records},
	}
	w.create(page)
	return page
}

// change changes an object as it is on the API server.
func change[T client.Object](w *discoveryWorld, o T, how func(T)) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		if w.Get(w.t.Context(), client.ObjectKeyFromObject(o), o) != nil {
			return false
		}
		how(o)
		return w.Update(w.t.Context(), o) == nil
	}, 20*time.Second, 20*time.Millisecond)
}

func record(name, ip string) v1alpha1.ExportedService {
	return v1alpha1.ExportedService{
		Namespace: "shop", Name: name, ExportedAt: 1700000000, Address: "10.112.0.1", Ready: true,
		Ports: []v1alpha1.ExportedPort{{Name: "http", Port: 80}},
		Endpoints: []v1alpha1.ExportedEndpoints{{
			Targets: []int32{8080}, Pods: []v1alpha1.ExportedEndpoint{{IP: ip}},
		}},
	}
}

func (w *discoveryWorld) imported(name string) *mcsv1alpha1.ServiceImport {
	w.t.Helper()
	return has(w, &mcsv1alpha1.ServiceImport{}, "shop", name, func(i *mcsv1alpha1.ServiceImport) bool {
		return len(i.Spec.IPs) == 1 && len(i.Status.Clusters) > 0
	})
}

// A Service that another cluster exports gets an import, a derived Service with an address, and
// EndpointSlices. All are gone when the other cluster does not export it any more.
func TestAgentImports(t *testing.T) {
	w := newDiscoveryWorld(t)
	page := w.member("east", 12, record("web", "10.12.0.7"))
	stop := w.run()
	web := w.imported("web")
	derived := has(w, &corev1.Service{}, "shop", services.DerivedName(client.ObjectKeyFromObject(web)),
		func(s *corev1.Service) bool { return s.Spec.ClusterIP != "" })
	require.Equal(t, []string{derived.Spec.ClusterIP}, web.Spec.IPs)
	require.Empty(t, derived.Spec.Selector)
	slices := &discoveryv1.EndpointSliceList{}
	require.Eventually(t, func() bool {
		return w.List(t.Context(), slices, client.InNamespace("shop")) == nil && len(slices.Items) == 1
	}, 20*time.Second, 20*time.Millisecond)
	require.Equal(t, []string{"10.12.0.7"}, slices.Items[0].Endpoints[0].Addresses)
	require.Equal(t, "east", slices.Items[0].Labels[mcsv1alpha1.LabelSourceCluster])
	w.imported("web")

	// A restart changes nothing, nor does a new version of the agent.
	stop()
	stop = w.run()
	change(w, page, func(p *v1alpha1.ExportedServices) { p.Spec.Services[0].Endpoints[0].Pods[0].IP = "10.12.0.8" })
	require.Eventually(t, func() bool {
		return w.List(t.Context(), slices, client.InNamespace("shop")) == nil &&
			slices.Items[0].Endpoints[0].Addresses[0] == "10.12.0.8"
	}, 20*time.Second, 20*time.Millisecond)
	require.Equal(t, web.UID, w.imported("web").UID)
	require.Equal(t, web.Spec.IPs, w.imported("web").Spec.IPs)

	change(w, page, func(p *v1alpha1.ExportedServices) { p.Spec.Services = nil })
	w.gone(web)
	w.gone(derived)
	w.gone(&slices.Items[0])
	stop()
}

// A Service with a ServiceExport is in a page, and the cluster imports it itself.
func TestAgentExports(t *testing.T) {
	w := newDiscoveryWorld(t)
	w.run()
	db := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "db"}, Ports: []corev1.ServicePort{{Name: "sql", Port: 5432}},
		},
	}
	w.create(db)
	w.create(&discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "db-1", Labels: map[string]string{discoveryv1.LabelServiceName: "db"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("sql"), Port: new(int32(5432))}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.111.0.9"}}},
	})
	export := &mcsv1alpha1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}}
	w.create(export)
	page := has(w, &v1alpha1.ExportedServices{}, cluster.Namespace, "west-services-0",
		func(p *v1alpha1.ExportedServices) bool { return len(p.Spec.Services) == 1 && p.Spec.Services[0].Ready })
	require.Equal(t, db.Spec.ClusterIP, page.Spec.Services[0].Address)
	require.Equal(t, "10.111.0.9", page.Spec.Services[0].Endpoints[0].Pods[0].IP)
	has(w, export, "shop", "db", func(e *mcsv1alpha1.ServiceExport) bool {
		return meta.IsStatusConditionFalse(e.Status.Conditions, string(mcsv1alpha1.ServiceExportConditionReady)) &&
			strings.Contains(fmt.Sprint(e.Status.Conditions),
				"until the gateway of this cluster reports that it has published west-services-0")
	})
	page.Status.Conditions = []metav1.Condition{{ // as the speaker does
		Type: v1alpha1.ConditionShared, Status: metav1.ConditionTrue, Reason: "Shared",
		ObservedGeneration: page.Generation, LastTransitionTime: metav1.Now(),
	}}
	require.NoError(t, w.Status().Update(t.Context(), page))
	has(w, export, "shop", "db", func(e *mcsv1alpha1.ServiceExport) bool {
		return meta.IsStatusConditionTrue(e.Status.Conditions, string(mcsv1alpha1.ServiceExportConditionReady)) &&
			meta.IsStatusConditionFalse(e.Status.Conditions, string(mcsv1alpha1.ServiceExportConditionConflict))
	})
	own := w.imported("db")
	require.NotEqual(t, []string{db.Spec.ClusterIP}, own.Spec.IPs)

	require.NoError(t, w.Delete(t.Context(), export))
	has(w, page, cluster.Namespace, page.Name,
		func(p *v1alpha1.ExportedServices) bool { return len(p.Spec.Services) == 0 })
	w.gone(own)
}

// What somebody else has made is not touched, and does not keep the agent from the rest. When the
// cluster leaves, the agent deletes what it has made.
func TestAgentLeavesOthersAlone(t *testing.T) {
	w := newDiscoveryWorld(t)
	theirs := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: services.DerivedName(client.ObjectKey{Namespace: "shop", Name: "web"}),
		},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}},
	}
	w.create(theirs)
	foreign := &mcsv1alpha1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "foreign"},
		Spec: mcsv1alpha1.ServiceImportSpec{
			Type:  mcsv1alpha1.ClusterSetIP,
			Ports: []mcsv1alpha1.ServicePort{{Port: 1}},
		},
	}
	w.create(foreign)
	w.member("east", 12, record("foreign", "10.12.0.6"), record("other", "10.12.0.7"), record("web", "10.12.0.8"))
	w.run()
	other := w.imported("other")
	web := has(w, &mcsv1alpha1.ServiceImport{}, "shop", "web", func(i *mcsv1alpha1.ServiceImport) bool {
		return meta.IsStatusConditionFalse(i.Status.Conditions, string(mcsv1alpha1.ServiceImportConditionReady))
	})
	require.Empty(t, web.Spec.IPs)

	leaveCluster(t, w.Client)
	w.gone(other)
	w.gone(web)
	for _, o := range []client.Object{theirs, foreign} {
		uid := o.GetUID()
		require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(o), o))
		require.Equal(t, uid, o.GetUID())
		require.Empty(t, o.GetLabels())
	}
	list := &discoveryv1.EndpointSliceList{}
	require.Eventually(t, func() bool {
		return w.List(t.Context(), list, client.InNamespace("shop")) == nil && len(list.Items) == 0
	}, 20*time.Second, 20*time.Millisecond)
}

// A quota that refuses a derived Service delays no other import, and the import tells about it.
func TestAgentReportsRefusedServices(t *testing.T) {
	w := newDiscoveryWorld(t)
	w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "full"}})
	w.create(&corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: "full", Name: "none"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"services": resource.MustParse("0")}},
	})
	full := record("web", "10.12.0.6")
	full.Namespace = "full"
	w.member("east", 12, full, record("web", "10.12.0.7"))
	w.run()
	w.imported("web")
	has(w, &mcsv1alpha1.ServiceImport{}, "full", "web", func(i *mcsv1alpha1.ServiceImport) bool {
		ready := meta.FindStatusCondition(i.Status.Conditions, string(mcsv1alpha1.ServiceImportConditionReady))
		return ready != nil && ready.Status == metav1.ConditionFalse && ready.Reason == discoverer.ReasonRefused
	})
}
