package cmd

import (
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/broker/brokertest"
	"subctl/broker/trust"
	"subctl/cluster"
	"subctl/globalnet"
	"subctl/internal/cli"
)

// A cluster gets a global network when it joins, for which alone it gets a grant, keeps it when it
// joins again, changes it only when that is asked for, and releases what it does not use.
func TestJoinGlobalnet(t *testing.T) {
	w := newJoinWorld(t)
	info, err := globalnet.Parse("242.0.0.0/8", 65536)
	require.NoError(t, err)
	objs, err := broker.Render(broker.Options{
		Namespace:   submarinerv1.BrokerNamespace,
		Components:  []string{broker.Connectivity},
		CableDriver: "vxlan",
		Sets:        []string{"prod"},
		Globalnet:   info,
	})
	require.NoError(t, err)
	require.NoError(t, broker.Apply(t.Context(), w.hubC, objs))
	// A cluster in another clusterset has the first network.
	uid, err := broker.EnsureMember(t.Context(), w.hubC, submarinerv1.BrokerNamespace, "north", "uid-north",
		broker.Reservation{Sets: []string{"prod"}})
	require.NoError(t, err)
	_, err = broker.ReserveNetwork(t.Context(), w.hubC, submarinerv1.BrokerNamespace, info,
		broker.NetworkRequest{NetworkRequest: globalnet.NetworkRequest{Cluster: "north"}, Account: uid}, time.Now())
	require.NoError(t, err)

	announces := func() (names []string) { // the global networks that west may announce
		role := &rbacv1.Role{}
		require.NoError(
			t,
			w.hubC.Get(t.Context(),
				client.ObjectKey{Namespace: submarinerv1.BrokerNamespace, Name: broker.MemberName("west")}, role),
		)
		for _, r := range role.Rules[1:] {
			names = append(names, r.ResourceNames...)
		}
		return names
	}
	file := w.file
	join := func(want string, flags ...string) (stderr string) {
		t.Helper()
		args := append(
			[]string{
				"join", file, "--clusterid", "west", "--servicecidr", "10.101.0.0/16", "--clustercidr", "10.111.0.0/16",
				"--wait=false",
			},
			flags...)
		r := w.run(t, args...)
		require.Equal(t, cli.ExitDone, r.code, r.stderr)
		sub := &v1alpha1.Submariner{}
		require.NoError(
			t,
			w.memberC.Get(t.Context(), client.ObjectKey{Namespace: cluster.Namespace, Name: v1alpha1.SubmarinerName},
				sub),
		)
		require.Equal(t, want, sub.Spec.GlobalCIDR)
		require.Equal(t, want, sub.Status.GlobalCIDR)
		grant, err := brokertest.Key("administrator").Public().Grant(sub.Annotations[submarinerv1.GrantAnnotation])
		require.NoError(t, err)
		granted := []netip.Prefix{netip.MustParsePrefix("10.101.0.0/16"), netip.MustParsePrefix("10.111.0.0/16")}
		var networks []netip.Prefix
		var may []string
		if want != "" {
			may = []string{want}
			networks = []netip.Prefix{netip.MustParsePrefix(want)}
			granted = networks
		}
		require.Equal(t, granted, grant.Networks)
		record, err := broker.GlobalNetworks(t.Context(), w.hubC, submarinerv1.BrokerNamespace, time.Now())
		require.NoError(t, err)
		require.Equal(t, networks, record.Find("west").Networks)
		require.Equal(t, may, announces())
		require.Equal(t, []netip.Prefix{netip.MustParsePrefix("242.0.0.0/16")}, record.Find("north").Networks)
		return r.stderr
	}
	join("242.1.0.0/16")
	join("242.1.0.0/16")
	require.Contains(t, w.run(t, "show", "networks").stdout, "242.1.0.0/16")
	join("242.9.0.0/20", "--globalnet-cidr", "242.9.0.0/20")
	join("242.9.0.0/20", "--reset")
	// The agent goes with the last address of the network.
	agent := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: cluster.GlobalnetName, Namespace: cluster.Namespace},
	}
	here := func() bool {
		return w.memberC.Get(t.Context(), client.ObjectKeyFromObject(agent), agent) == nil
	}
	used := &submarinerv1.GlobalEgressIP{ObjectMeta: metav1.ObjectMeta{Name: "mine", Namespace: "default"}}
	require.NoError(t, w.memberC.Create(t.Context(), used))
	used.Status.AllocatedIPs = []string{"242.9.0.9"}
	require.NoError(t, w.memberC.Status().Update(t.Context(), used))
	require.True(t, here())
	require.Contains(t, join("", "--globalnet=false"), "GlobalEgressIP default/mine still has an address")
	require.True(t, here())
	used.Status.AllocatedIPs = nil
	require.NoError(t, w.memberC.Status().Update(t.Context(), used))
	annotated := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "web",
			Namespace:   "default",
			Annotations: map[string]string{submarinerv1.GlobalIPAnnotation: "242.9.0.9", "example.com/mine": "kept"},
		},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}
	require.NoError(t, w.memberC.Create(t.Context(), annotated))
	require.Contains(t, join(""), "removed the globalnet agent")
	require.False(t, here())
	require.NoError(t, w.memberC.Get(t.Context(), client.ObjectKeyFromObject(annotated), annotated))
	require.Equal(t, map[string]string{"example.com/mine": "kept"}, annotated.Annotations,
		"the agent has not removed it")
	for _, kind := range []client.ObjectList{
		&rbacv1.ClusterRoleList{},
		&rbacv1.ClusterRoleBindingList{},
		&rbacv1.RoleList{},
		&rbacv1.RoleBindingList{},
		&corev1.ServiceAccountList{},
		&corev1.ConfigMapList{},
	} {
		require.NoError(t, w.memberC.List(t.Context(), kind))
		require.NoError(t, meta.EachListItem(kind, func(o runtime.Object) error {
			require.NotContains(t, o.(client.Object).GetName(), "submariner-globalnet")
			return nil
		}))
	}
	require.NoError(
		t,
		w.memberC.Get(t.Context(), client.ObjectKey{Name: mcsv1alpha1.ServiceExportFullName},
			&apiextensionsv1.CustomResourceDefinition{}),
	)
	require.NotContains(t, join(""), "globalnet agent")
	join("242.1.0.0/22", "--globalnet-cluster-size", "1000")
	r := w.run(t, "join", w.file, "--clusterid", "west", "--servicecidr", "10.101.0.0/16", "--wait=false",
		"--globalnet-cidr", "242.0.128.0/17")
	require.Equal(t, cli.ExitFailed, r.code)
	require.Contains(t, r.stderr, `global network 242.0.128.0/17 overlaps 242.0.0.0/16 of cluster "north"`)

	t.Log("with an invitation")
	hub := &v1alpha1.Broker{}
	require.NoError(
		t,
		w.hubC.Get(t.Context(), client.ObjectKey{Namespace: submarinerv1.BrokerNamespace, Name: v1alpha1.BrokerName},
			hub),
	)
	f, err := broker.InviteCluster(t.Context(), w.hubC, hub, broker.Invitation{
		URL:           w.hub.Config().Host,
		CA:            w.hub.Config().CAData,
		PSK:           broker.Secret(w.psk),
		Administrator: brokertest.Key("administrator"),
		TTL:           time.Hour,
		Global:        &globalnet.NetworkRequest{Cluster: "west"},
	}, trust.Invitation{Cluster: "west", Gateways: 2, Sets: []string{"default"}}, time.Now())
	require.NoError(t, err)
	file = filepath.Join(t.TempDir(), "west.subm")
	_, err = f.WriteFile(file, time.Now())
	require.NoError(t, err)
	require.NoError(t, broker.LetAnnounce(t.Context(), w.hubC, submarinerv1.BrokerNamespace, "west"))
	join("242.1.0.0/22")
}
