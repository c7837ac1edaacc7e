package agent

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cluster"
	"subctl/cluster/clustertest"
	"subctl/globalnet/allocator"
	"subctl/internal/kube"
	"subctl/internal/kubetest"
)

// globalnetServer returns an API server with what join installs in a cluster with the global
// network 242.7.0.0/16, and the rights of the globalnet agent.
func globalnetServer(t testing.TB) (admin client.Client, config *rest.Config) {
	t.Helper()
	return globalnetServerOf(t, "242.7.0.0/16")
}

func globalnetServerOf(t testing.TB, network string) (admin client.Client, config *rest.Config) {
	t.Helper()
	sub := clustertest.Submariner()
	sub.Spec.GlobalCIDR = network
	return agentServer(t, sub, cluster.GlobalnetName)
}

// agentServer returns an API server with what join installs in a cluster that is joined as sub
// describes, and the rights of one of its agents.
func agentServer(t testing.TB, sub *v1alpha1.Submariner, account string) (admin client.Client, config *rest.Config) {
	t.Helper()
	return installed(t, kubetest.Start(t), sub, account)
}

// installed installs on a server what join installs, and returns the rights of an agent.
func installed(
	t testing.TB, server *kubetest.Server, sub *v1alpha1.Submariner, account string,
) (admin client.Client, config *rest.Config) {
	t.Helper()
	admin = server.Client(t)
	for _, o := range clustertest.Render(t, sub) {
		require.NoError(t, kube.Apply(t.Context(), admin, kube.FieldOwner, o))
		if def, is := o.(*apiextensionsv1.CustomResourceDefinition); is {
			require.Eventually(t, func() bool {
				found := &apiextensionsv1.CustomResourceDefinition{}
				if admin.Get(t.Context(), client.ObjectKeyFromObject(def), found) != nil {
					return false
				}
				for _, c := range found.Status.Conditions {
					if c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue {
						return true
					}
				}
				return false
			}, time.Minute, 50*time.Millisecond)
		}
	}
	config = rest.CopyConfig(server.Config())
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + cluster.Namespace + ":" + account,
		Groups:   []string{"system:serviceaccounts", "system:authenticated"},
	}
	return admin, config
}

// leaveCluster deletes the Submariner object, as uninstall does. It stays: its finalizer waits for
// all nodes.
func leaveCluster(t *testing.T, admin client.Client) {
	t.Helper()
	sub := &v1alpha1.Submariner{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: v1alpha1.SubmarinerName},
	}
	require.NoError(
		t,
		admin.Patch(t.Context(), sub,
			client.RawPatch("application/merge-patch+json",
				[]byte(`{"metadata":{"finalizers":["example.com/kept"]}}`))),
	)
	require.NoError(t, admin.Delete(t.Context(), sub))
}

// globalnetOptions returns how a globalnet agent is run.
func globalnetOptions(config *rest.Config, log *slog.Logger) Options {
	return Options{
		Role:        allocator.Role(),
		Kernel:      NoKernel(),
		Node:        "node",
		MetricsAddr: "127.0.0.1:0",
		ProbeAddr:   "127.0.0.1:0",
		Config:      config,
		Log:         log,
	}
}

// runGlobalnetAgent runs a globalnet agent until the test ends. Its metrics are in a registry of
// its own, as a process has one agent otherwise.
func runGlobalnetAgent(t *testing.T, config *rest.Config) {
	runAgent(t, globalnetOptions(config, slog.New(slog.NewTextHandler(t.Output(), nil))))
}

// runAgent runs an agent until the test ends, or the function that it returns is called.
func runAgent(t *testing.T, o Options) (stop func()) {
	registry := metrics.Registry
	metrics.Registry = prometheus.NewRegistry()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, o) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-ended)
		metrics.Registry = registry
	})
	t.Cleanup(stop)
	return stop
}

// On a real API server, with the rights of its account: an exported Service gets an address, a
// changed number of addresses is live, and an address is freed with its object.
func TestGlobalnetAgent(t *testing.T) {
	admin, config := globalnetServer(t)
	runGlobalnetAgent(t, config)

	egress := &submarinerv1.ClusterGlobalEgressIP{ObjectMeta: metav1.ObjectMeta{Name: submarinerv1.ClusterEgress}}
	eventually := func(what string, holds func() bool) {
		t.Helper()
		require.Eventually(t, holds, 2*time.Minute, 50*time.Millisecond, what)
	}
	has := func(n int) func() bool {
		return func() bool {
			return admin.Get(t.Context(), client.ObjectKeyFromObject(egress), egress) == nil &&
				len(egress.Status.AllocatedIPs) == n
		}
	}
	eventually("the cluster has shared addresses", has(8))
	require.Equal(t, "242.7.0.1", egress.Status.AllocatedIPs[0])
	for _, n := range []int{12, 4} {
		require.NoError(
			t,
			admin.Patch(
				t.Context(),
				egress,
				client.RawPatch("application/merge-patch+json",
					[]byte(`{"spec":{"numGlobalIPs":`+map[int]string{12: "12", 4: "4"}[n]+`}}`)),
			),
		)
		eventually("a changed number is live", has(n))
		require.Equal(t, "242.7.0.1", egress.Status.AllocatedIPs[0])
	}

	in := metav1.ObjectMeta{Namespace: "default", Name: "web"}
	require.NoError(
		t,
		admin.Create(t.Context(),
			&corev1.Service{ObjectMeta: in, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}),
	)
	export := &mcsv1alpha1.ServiceExport{ObjectMeta: in}
	require.NoError(t, admin.Create(t.Context(), export))
	address := &submarinerv1.GlobalIngressIP{ObjectMeta: in}
	eventually("an exported Service has an address", func() bool {
		return admin.Get(t.Context(), client.ObjectKeyFromObject(export), export) == nil &&
			meta.IsStatusConditionTrue(export.Status.Conditions, "Ready")
	})
	require.True(t, meta.IsStatusConditionTrue(export.Status.Conditions, "Valid"))
	eventually("its status has the address", func() bool {
		return admin.Get(t.Context(), client.ObjectKeyFromObject(address), address) == nil &&
			address.Status.AllocatedIP == "242.7.255.254"
	})
	record := &corev1.ConfigMap{}
	require.NoError(
		t,
		admin.Get(t.Context(), client.ObjectKey{Namespace: cluster.Namespace, Name: submarinerv1.GlobalnetMemory},
			record),
	)
	require.Contains(t, record.Data["used"], "242.7.255.254")

	require.NoError(t, admin.Delete(t.Context(), export))
	eventually("the address is freed", func() bool {
		return client.IgnoreNotFound(admin.Get(t.Context(), client.ObjectKeyFromObject(address), address)) == nil &&
			address.UID != "" &&
			admin.Get(t.Context(), client.ObjectKeyFromObject(address), &submarinerv1.GlobalIngressIP{}) != nil
	})
	other := &submarinerv1.GlobalEgressIP{ObjectMeta: in}
	require.NoError(t, admin.Create(t.Context(), other))
	eventually("another object gets another address", func() bool {
		return admin.Get(t.Context(), client.ObjectKeyFromObject(other), other) == nil &&
			len(other.Status.AllocatedIPs) == 1
	})
	require.Equal(t, "242.7.255.253", other.Status.AllocatedIPs[0], "the freed address rests")

	again := &mcsv1alpha1.ServiceExport{ObjectMeta: in}
	require.NoError(t, admin.Create(t.Context(), again))
	eventually("it is exported again", func() bool {
		return admin.Get(t.Context(), client.ObjectKeyFromObject(again), again) == nil &&
			meta.IsStatusConditionTrue(again.Status.Conditions, "Ready")
	})
	leaveCluster(t, admin)
	eventually("a cluster that leaves says nothing of exports any more", func() bool {
		return admin.Get(t.Context(), client.ObjectKeyFromObject(again), again) == nil &&
			len(again.Status.Conditions) == 0
	})
}

// On a real API server, with the rights of the agent: an object that waits for an address has a
// condition, and one Event about it. The ServiceExport or the pod that needs the address has an
// Event, too, which kubectl describe shows.
func TestEventsOfAFullNetwork(t *testing.T) {
	admin, config := globalnetServerOf(t, "242.7.0.0/28")
	runGlobalnetAgent(t, config)
	in := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "default", Name: name} }
	egress := func(name string, n int) {
		require.NoError(
			t,
			admin.Create(
				t.Context(),
				&submarinerv1.GlobalEgressIP{
					ObjectMeta: in(name),
					Spec:       submarinerv1.GlobalEgressIPSpec{NumberOfIPs: &n},
				},
			),
		)
	}
	service := func(name string) {
		require.NoError(
			t,
			admin.Create(
				t.Context(),
				&corev1.Service{
					ObjectMeta: in(name),
					Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
				},
			),
		)
		require.NoError(t, admin.Create(t.Context(), &mcsv1alpha1.ServiceExport{ObjectMeta: in(name)}))
	}
	events := func() (out []string) {
		list := &eventsv1.EventList{}
		require.NoError(t, admin.List(t.Context(), list))
		for _, e := range list.Items {
			if e.ReportingController == "subctl-globalnet" {
				require.Nil(t, e.Series, e.Note)
				out = append(out, e.Regarding.Kind+" "+e.Regarding.Name+" "+e.Action+" "+e.Reason)
			}
		}
		slices.Sort(out)
		return out
	}
	shared := &submarinerv1.ClusterGlobalEgressIP{ObjectMeta: metav1.ObjectMeta{Name: submarinerv1.ClusterEgress}}
	require.Eventually(t, func() bool {
		return admin.Get(t.Context(), client.ObjectKeyFromObject(shared), shared) == nil &&
			len(shared.Status.AllocatedIPs) == 8
	}, 2*time.Minute, 50*time.Millisecond)
	egress("most", 6)
	most := &submarinerv1.GlobalEgressIP{ObjectMeta: in("most")}
	require.Eventually(t, func() bool {
		return admin.Get(t.Context(), client.ObjectKeyFromObject(most), most) == nil &&
			len(most.Status.AllocatedIPs) == 6
	}, time.Minute, 50*time.Millisecond)
	service("web")
	egress("more", 2)
	own := &corev1.Pod{
		ObjectMeta: in("own"),
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
	own.Annotations = map[string]string{submarinerv1.OwnGlobalIPAnnotation: submarinerv1.OwnGlobalIP}
	require.NoError(t, admin.Create(t.Context(), own))
	own.Status.Phase = corev1.PodRunning
	own.Status.PodIP = "10.244.1.1"
	own.Status.PodIPs = []corev1.PodIP{{IP: "10.244.1.1"}}
	require.NoError(t, admin.Status().Update(t.Context(), own))
	want := []string{
		"GlobalEgressIP more Allocated IPPoolAllocationFailed",
		"GlobalIngressIP pod-own Allocated IPPoolAllocationFailed",
		"GlobalIngressIP web Allocated IPPoolAllocationFailed",
		"Pod own Allocated IPPoolAllocationFailed",
		"ServiceExport web Ready IPPoolAllocationFailed",
	}
	require.Eventually(t, func() bool { return len(events()) >= len(want) }, 30*time.Second, 50*time.Millisecond)
	for i := range 5 { // more loops
		require.NoError(
			t,
			admin.Create(
				t.Context(),
				&corev1.Service{
					ObjectMeta: in(fmt.Sprint("other-", i)),
					Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
				},
			),
		)
		time.Sleep(300 * time.Millisecond)
	}
	require.Equal(t, want, events())
}
