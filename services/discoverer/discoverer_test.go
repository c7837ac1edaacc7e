package discoverer

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/services"
)

// importing returns the objects of cluster "west", and of a cluster "east" that exports some
// Services from namespace "shop".
func importing(exported int) []role.Object {
	sub := &v1alpha1.Submariner{Spec: v1alpha1.SubmarinerSpec{
		ClusterID: "west", ClusterCIDR: "10.11.0.0/16", ServiceCIDR: "10.101.0.0/16", ServiceDiscoveryEnabled: true,
	}}
	label := map[string]string{submarinerv1.ClusterIDLabel: "east"}
	east := &submarinerv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: submarinerv1.OperatorNamespace, Name: "east", Labels: label},
		Spec: submarinerv1.ClusterSpec{
			ClusterID: "east", ClusterCIDR: []string{"10.12.0.0/16"}, ServiceCIDR: []string{"10.102.0.0/16"},
		},
	}
	out := []role.Object{sub, east, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}}
	const perPage = 200
	pages := (exported + perPage - 1) / perPage
	for n := range pages {
		page := &v1alpha1.ExportedServices{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: submarinerv1.OperatorNamespace,
				Name:      v1alpha1.ExportedServicesName("east", n),
				Labels:    label,
			},
			Spec: v1alpha1.ExportedServicesSpec{ClusterID: "east", Pages: pages},
		}
		for i := n * perPage; i < min(exported, (n+1)*perPage); i++ {
			page.Spec.Services = append(page.Spec.Services, v1alpha1.ExportedService{
				Namespace: "shop", Name: fmt.Sprintf("s%04d", i), ExportedAt: 1, Address: "10.102.0.1", Ready: true,
				Ports: []v1alpha1.ExportedPort{{Port: 80}},
			})
		}
		out = append(out, page)
	}
	return out
}

// own returns a Service of cluster "west" with its export and endpoint.
func own(name string) []role.Object {
	in := metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name)}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: *in.DeepCopy(), AddressType: discoveryv1.AddressTypeIPv4,
		Ports:     []discoveryv1.EndpointPort{{Name: new(""), Port: new(int32(8080))}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.11.0.9"}, NodeName: new("n1")}},
	}
	slice.Labels = map[string]string{discoveryv1.LabelServiceName: name, "other": "label"}
	return []role.Object{
		&corev1.Service{ObjectMeta: *in.DeepCopy(), Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.101.0.7", Ports: []corev1.ServicePort{{Port: 80}},
			Selector: map[string]string{"app": name},
		}},
		slice, &mcsv1alpha1.ServiceExport{ObjectMeta: *in.DeepCopy()},
	}
}

// discovered returns what the agent writes.
func discovered(t *testing.T, s role.Snapshot) role.Report {
	t.Helper()
	if s.Now.IsZero() {
		s.Now = time.Unix(1000, 0)
	}
	agentRole := Role()
	p, err := agentRole.Plan(s)
	require.NoError(t, err)
	return agentRole.Report(s, p, role.Outcome{Now: s.Now, Contained: true})
}

// A loop writes no more than it has time for, and then the next one goes on. What the API server
// refuses takes nobody's place, until it is tried again.
func TestServicesWritesArePaced(t *testing.T) {
	s := role.NewSnapshot("n1", importing(role.MaxWrites+50)...)
	s.Now = time.Unix(1000, 0)
	r := discovered(t, s)
	require.Len(t, r.Apply, role.MaxWrites)
	require.True(t, r.More)
	for _, o := range r.Apply {
		s.Refused = s.Refused.With(o, errors.New("exceeded quota"), s.Now)
	}
	r = discovered(t, s)
	require.Len(t, r.Apply, 50)
	require.False(t, r.More)
	require.Equal(t, role.FirstPause, r.Again)
	s.Now = s.Now.Add(role.FirstPause)
	require.Len(t, discovered(t, s).Apply, role.MaxWrites)
}

// A member that exports very many Services leaves half of the cluster IPs to others.
func TestHostileExportsTakeNoClusterIPs(t *testing.T) {
	objs := importing(1000)
	objs[0].(*v1alpha1.Submariner).Spec.ServiceCIDR = "10.101.0.0/24"
	r := discovered(t, role.NewSnapshot("n1", objs...))
	require.Len(t, r.Apply, 64, "half of those that may be imported")
	refused := RefusedServices(role.NewSnapshot("n1", objs...))
	require.Len(t, refused, 1000-64)
	require.Contains(t, refused[0].Reason, "no more than 64 Services of one cluster")
}

// Rules for all namespaces open none of the system's to imports.
func TestHostileExportsIntoReservedNamespaces(t *testing.T) {
	settings := v1alpha1.ServiceDiscoverySpec{
		ExportNamespaces: []string{
			"*",
		}, Imports: []v1alpha1.ImportRule{{Namespaces: []string{"*", "k*"}, Clusters: []string{"east"}}},
	}
	for _, namespace := range []string{"kube-system", "openshift-dns", submarinerv1.OperatorNamespace} {
		require.False(t, mayImport(settings, namespace), namespace)
	}
	require.True(t, mayImport(settings, "shop"))
}

// A node reports an address of a Service in another cluster as its own. Gateways that are connected
// to the cluster send packets there, so that the Service stays imported.
func TestHostileNodeHasAddressOfService(t *testing.T) {
	now := time.Unix(1000, 0)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.102.0.1"}}
	refused := func(networks ...string) []services.Refusal {
		g := &submarinerv1.Gateway{ObjectMeta: metav1.ObjectMeta{Name: "gw"}}
		g.Status.HAStatus = submarinerv1.HAStatusActive
		g.SetReportedAt(now)
		for _, n := range networks {
			g.Status.Connections = append(g.Status.Connections, submarinerv1.Connection{
				Endpoint: submarinerv1.EndpointSpec{
					ClusterID: "east",
					Subnets:   []string{n},
				}, Status: submarinerv1.Connected,
			})
		}
		s := role.NewSnapshot("n1", append(importing(1), node, Role().Slim(g))...)
		s.Now = now
		s.ReportTimes = role.ReportTimes{"gw": {At: now}}
		return RefusedServices(s)
	}
	require.Empty(t, refused("10.12.0.0/16", "10.102.0.0/16"))
	require.Len(t, refused("10.12.0.0/16"), 1, "no gateway leads there: the node may have it")
	require.Len(t, refused(), 1)
}

// A member changes more of its exports, all the time, than a loop writes. The import of another
// member comes nevertheless.
func TestHostileFlappingExports(t *testing.T) {
	objs := importing(2000)
	label := map[string]string{submarinerv1.ClusterIDLabel: "north"}
	in := metav1.ObjectMeta{Namespace: submarinerv1.OperatorNamespace, Name: "north", Labels: label}
	page := metav1.ObjectMeta{Namespace: in.Namespace, Name: v1alpha1.ExportedServicesName("north", 0), Labels: label}
	objs = append(objs, &submarinerv1.Cluster{ObjectMeta: in, Spec: submarinerv1.ClusterSpec{
		ClusterID: "north", ClusterCIDR: []string{"10.13.0.0/16"}, ServiceCIDR: []string{"10.103.0.0/16"},
	}}, &v1alpha1.ExportedServices{ObjectMeta: page, Spec: v1alpha1.ExportedServicesSpec{
		ClusterID: "north", Pages: 1, Services: []v1alpha1.ExportedService{{
			Namespace: "shop",
			Name:      "web",
			Address:   "10.103.0.1",
			Ready:     true,
			Ports:     []v1alpha1.ExportedPort{{Port: 80}},
		}},
	}})
	s := role.NewSnapshot("n1", objs...)
	s.Now = time.Unix(1000, 0)
	require.Eventually(t, func() bool {
		s.Now = s.Now.Add(time.Second / 5)
		return slices.ContainsFunc(discovered(t, s).Apply, func(o role.Object) bool { return o.GetName() == "web" })
	}, 20*time.Second, time.Millisecond)
	require.Less(t, s.Now.Unix(), int64(1010))
}

// A member announces where this cluster has its API servers.
func TestHostileExportOfAPIServers(t *testing.T) {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default",
			Name:      "kubernetes",
		}, AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.102.0.1"}}},
	}
	refused := RefusedServices(role.NewSnapshot("n1", append(importing(1), Role().Slim(slice))...))
	require.Len(t, refused, 1)
	require.Contains(t, refused[0].Reason, "10.102.0.1 is the address of a node, or an API server, of this cluster")
	slice.Namespace = "shop"
	require.Empty(t, RefusedServices(role.NewSnapshot("n1", append(importing(1), slice)...)))
}

// Pauses between attempts grow, and end with success.
func TestRefused(t *testing.T) {
	o := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "x"}}
	now := time.Unix(1000, 0)
	var r role.Refused
	require.LessOrEqual(t, r.Wait(o, now), time.Duration(0))
	for _, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		r = r.With(o, errors.New("no"), now)
		require.Equal(t, want*time.Second, r.Wait(o, now))
	}
	require.Len(t, r.Since(now.Add(role.LongestPause)), 1)
	require.Empty(t, r.Since(now.Add(2*role.LongestPause+time.Second)), "nobody has tried it for long")
	require.Empty(t, r.With(o, nil, now))
}

// The agent decides the same from what it keeps of objects as from the objects.
func TestSlimServicesAreEnough(t *testing.T) {
	objs := append(importing(3), own("db")...)
	for _, kind := range []string{"a", "b"} {
		objs = append(objs, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: kind, Labels: map[string]string{corev1.LabelTopologyZone: kind, "x": "y"},
		}})
	}
	var slim []role.Object
	for _, o := range objs {
		slim = append(slim, Role().Slim(o))
	}
	r := discovered(t, role.NewSnapshot("n1", objs...))
	require.Len(t, r.Paced, 1)
	require.Len(t, r.Apply, 4)
	require.Len(t, r.UpdateStatus, 1)
	got := discovered(t, role.NewSnapshot("n1", slim...))
	require.Equal(t, r.Paced, got.Paced)
	require.Equal(t, r.Apply, got.Apply)
	conditions := func(r role.Report) []metav1.Condition {
		return r.UpdateStatus[0].(*mcsv1alpha1.ServiceExport).Status.Conditions
	}
	require.Equal(t, conditions(r), conditions(got))
	ready := string(mcsv1alpha1.ServiceExportConditionReady)
	require.True(t, meta.IsStatusConditionFalse(conditions(got), ready), "the broker does not have it yet")

	page := published(r.Paced[0].Object.(*v1alpha1.ExportedServices))
	r = discovered(t, role.NewSnapshot("n1", append(objs, page)...))
	require.Empty(t, r.Paced)
	require.True(t, meta.IsStatusConditionTrue(conditions(r), ready))
	got = discovered(t, role.NewSnapshot("n1", append(slim, Role().Slim(page))...))
	require.Equal(t, conditions(r), conditions(got))

	// There is a place for it no more, and then there is.
	page.Status.Conditions[0].Status = metav1.ConditionFalse
	page.Status.Conditions[0].Reason = v1alpha1.ReasonTooMany
	full := discovered(t, role.NewSnapshot("n1", append(objs, page)...))
	require.Equal(t, services.ReasonNoPlaceOnBroker, meta.FindStatusCondition(conditions(full), ready).Reason)
	objs[len(objs)-3] = full.UpdateStatus[0] // the ServiceExport
	require.Equal(t, conditions(r), conditions(discovered(t, role.NewSnapshot("n1", append(objs, published(page))...))))
}

// A copy of another cluster's page that has the name of one of ours, or a status, says nothing
// about our exports.
func TestHostileSharedPages(t *testing.T) {
	objs := append(importing(1), own("db")...)
	page := published(discovered(t, role.NewSnapshot("n1", objs...)).Paced[0].Object.(*v1alpha1.ExportedServices))
	page.Labels = map[string]string{submarinerv1.ClusterIDLabel: "east"}
	for _, name := range []string{"west-services-0", "east-services-1"} {
		page.Name = name
		for _, o := range discovered(t, role.NewSnapshot("n1", append(objs, page)...)).UpdateStatus {
			e, is := o.(*mcsv1alpha1.ServiceExport)
			require.True(t, is)
			require.True(t, meta.IsStatusConditionFalse(e.Status.Conditions, "Ready"), name)
		}
	}
}

// When the cluster leaves, an empty page remains, and all that is ours is deleted and nothing else.
func TestServicesLeave(t *testing.T) {
	ours := map[string]string{
		submarinerv1.ManagedByLabel: submarinerv1.ManagedBy, mcsv1alpha1.LabelServiceName: "x",
		discoveryv1.LabelManagedBy: services.ManagedBy,
	}
	at := func(name string, labels map[string]string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: labels}
	}
	exported := own("db")
	export := exported[2].(*mcsv1alpha1.ServiceExport)
	for _, kind := range []string{"Valid", "Ready", "Published", "Conflict", "Theirs"} {
		export.Status.Conditions = append(export.Status.Conditions, metav1.Condition{Type: kind})
	}
	page := func(n int) *v1alpha1.ExportedServices {
		return &v1alpha1.ExportedServices{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: submarinerv1.OperatorNamespace,
				Name:      v1alpha1.ExportedServicesName("west", n),
				Labels:    role.Ours(),
			},
			Spec: v1alpha1.ExportedServicesSpec{
				ClusterID: "west",
				Pages:     2,
				Services:  []v1alpha1.ExportedService{{Name: "db"}},
			},
		}
	}
	objs := append(importing(1), exported...)
	objs = append(
		objs,
		page(0),
		page(1),
		&mcsv1alpha1.ServiceImport{
			ObjectMeta: at("ours", ours),
		},
		&mcsv1alpha1.ServiceImport{ObjectMeta: at("theirs", nil)},
		&corev1.Service{ObjectMeta: at("derived-x", ours)},
		&corev1.Service{ObjectMeta: at("labelled", role.Ours())},
		&discoveryv1.EndpointSlice{
			ObjectMeta: at("ours", ours),
		},
		&discoveryv1.EndpointSlice{ObjectMeta: at("theirs", nil)},
	)
	for name, leave := range map[string]func(*v1alpha1.Submariner){
		"uninstall": func(sub *v1alpha1.Submariner) { sub.DeletionTimestamp = new(metav1.Now()) },
		"disable":   func(sub *v1alpha1.Submariner) { sub.Spec.ServiceDiscoveryEnabled = false },
	} {
		sub := objs[0].(*v1alpha1.Submariner).DeepCopy()
		leave(sub)
		all := append([]role.Object{sub}, objs[1:]...)
		r := discovered(t, role.NewSnapshot("n1", all...))
		var deleted []string
		for _, o := range r.Delete {
			deleted = append(deleted, fmt.Sprintf("%T %s", o, o.GetName()))
		}
		require.ElementsMatch(t, []string{
			"*v1.EndpointSlice ours", "*v1.Service derived-x", "*v1alpha1.ServiceImport ours",
		}, deleted, name)
		require.Empty(t, r.Apply)
		require.Len(t, r.Paced, 1, name)
		empty := r.Paced[0].Object.(*v1alpha1.ExportedServices)
		require.Equal(t, v1alpha1.ExportedServicesSpec{ClusterID: "west", Pages: 1}, empty.Spec)
		require.Len(t, r.UpdateStatus, 1)
		require.Equal(t, []metav1.Condition{{Type: "Theirs"}},
			r.UpdateStatus[0].(*mcsv1alpha1.ServiceExport).Status.Conditions)

		for i, o := range all { // it is empty, and the other one is no longer needed
			if o.GetName() == empty.Name {
				all[i] = empty
			}
		}
		r = discovered(t, role.NewSnapshot("n1", all...))
		require.Equal(t, "west-services-1", r.Delete[0].GetName())
	}
}

// With a global network, the agent tells in a condition of its own that an export is not published.
// It leaves those of the globalnet agent alone, and takes its own back when there is no global
// network.
func TestServicesWithGlobalNetwork(t *testing.T) {
	objs := append(importing(0), own("db")...)
	sub := objs[0].(*v1alpha1.Submariner)
	export := objs[len(objs)-1].(*mcsv1alpha1.ServiceExport)
	sub.Spec.GlobalCIDR = "242.0.0.0/16"
	sub.Spec.ServiceDiscovery = &v1alpha1.ServiceDiscoverySpec{ExportNamespaces: []string{"other"}}
	ready := metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Exported", Message: "at 242.0.0.1"}
	export.Status.Conditions = []metav1.Condition{ready}
	conditions := func() []metav1.Condition {
		r := discovered(t, role.NewSnapshot("n1", objs...))
		require.Len(t, r.UpdateStatus, 1)
		return r.UpdateStatus[0].(*mcsv1alpha1.ServiceExport).Status.Conditions
	}
	all := conditions()
	require.Equal(t, ready, *meta.FindStatusCondition(all, "Ready"))
	require.Equal(t, services.ReasonNamespaceNotGranted,
		meta.FindStatusCondition(all, services.ConditionPublished).Reason)

	export.Status.Conditions = all
	sub.Spec.GlobalCIDR = ""
	all = conditions()
	require.Equal(t, services.ReasonNamespaceNotGranted, meta.FindStatusCondition(all, "Ready").Reason)
	require.Nil(t, meta.FindStatusCondition(all, services.ConditionPublished))
}

// Nothing is imported into namespaces of the system that the settings do not name.
func TestMayImport(t *testing.T) {
	settings := v1alpha1.ServiceDiscoverySpec{
		ExportNamespaces: []string{
			"kube-public",
		}, Imports: []v1alpha1.ImportRule{{Namespaces: []string{"openshift-m*"}}},
	}
	for namespace, want := range map[string]bool{
		"shop": true, "kube-system": false, "kube-public": true, "openshift-monitoring": true, "openshift-dns": false,
		"submariner-operator": false,
	} {
		require.Equal(t, want, mayImport(settings, namespace), namespace)
	}
}
