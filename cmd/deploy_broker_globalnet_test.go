package cmd

import (
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker"
	"subctl/globalnet"
	"subctl/internal/cli"
)

// Globalnet can be enabled on a broker with members, which are told what to do. The range must not
// overlap what members use themselves.
func TestEnableGlobalnet(t *testing.T) {
	h := newHub(t)
	h.done(t, "deploy-broker", "--clusterset", "prod")
	for set, id := range map[string]string{"default": "west", "prod": "north"} {
		_, err := broker.AddMember(t.Context(), h.client, submarinerv1.BrokerNamespace, id, "uid-"+id,
			broker.Reservation{Sets: []string{set}})
		require.NoError(t, err)
	}
	prod := broker.NamespaceIn(submarinerv1.BrokerNamespace, "prod")
	north := &submarinerv1.ClusterList{}
	require.NoError(t, h.client.List(t.Context(), north))
	for _, c := range north.Items {
		if c.Namespace == prod {
			c.Spec.ClusterCIDR = []string{"242.200.0.0/16"}
			require.NoError(t, h.client.Update(t.Context(), &c))
		}
	}
	r := h.run(t, nil, "deploy-broker", "--globalnet")
	require.Equal(t, cli.ExitFailed, r.code)
	require.Contains(t, r.stderr,
		"Error: globalnet range 242.0.0.0/8 overlaps 242.200.0.0/16, a network of cluster \"north\": use another range\n")

	endpoint := &submarinerv1.Endpoint{ObjectMeta: metav1.ObjectMeta{Namespace: prod, Name: "north-gw"}}
	endpoint.Spec = submarinerv1.EndpointSpec{
		ClusterID: "north",
		CableName: "submariner-cable-north-gw",
		Hostname:  "gw",
		Backend:   "vxlan",
		PrivateIP: "100.66.0.7",
		PublicIP:  "100.67.0.7",
		Subnets:   []string{"10.1.0.0/16"},
	}
	require.NoError(t, h.client.Create(t.Context(), endpoint))
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "hub", Labels: map[string]string{corev1.LabelOSStable: "linux"}},
	}
	require.NoError(t, h.client.Create(t.Context(), node))
	was := node.DeepCopy() // what controllers change meanwhile stays
	node.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: "100.65.0.7"},
		{Type: corev1.NodeHostName, Address: "hub"},
	}
	require.NoError(t, h.client.Status().Patch(t.Context(), node, client.MergeFrom(was)))
	r = h.run(t, nil, "deploy-broker", "--globalnet", "--globalnet-cidr-range", "100.64.0.0/10")
	require.Equal(t, cli.ExitFailed, r.code)
	for _, mistake := range []string{
		`contains 100.65.0.7, the InternalIP of node hub of the broker's cluster: use another range`,
		`contains 100.66.0.7, an address of gateway "gw" of cluster "north": use another range`,
		`contains 100.67.0.7, an address of gateway "gw" of cluster "north": use another range`,
	} {
		require.Contains(t, r.stderr, "globalnet range 100.64.0.0/10 "+mistake)
	}
	for _, ours := range []string{"240.0.0.0/4", "241.7.0.0/16", "244.0.0.0/7"} {
		require.Equal(t, cli.ExitUsage,
			h.run(t, nil, "deploy-broker", "--globalnet", "--globalnet-cidr-range", ours).code, ours)
	}

	r = h.run(t, nil, "deploy-broker", "--globalnet", "--globalnet-cidr-range", "100.64.0.0/28")
	require.Equal(t, cli.ExitUsage, r.code)
	r = h.run(t, nil, "deploy-broker", "--globalnet", "--globalnet-cidr-range", "100.64.0.0/20")
	require.Contains(t, r.stderr,
		"globalnet cluster size 65536 is more than half of 100.64.0.0/20 (4096 addresses): use at most 2048, or a larger range")
	r = h.done(t, "deploy-broker", "--globalnet", "--globalnet-cidr-range", "100.64.0.0/20", "--globalnet-cluster-size",
		"256")
	const tells = "these members have no global network, and stay connected by the addresses of their own networks: north, west. Each gets one when somebody who administers it runs: subctl join FILE --globalnet --force."
	require.Contains(t, r.stderr, tells)
	require.NotContains(t, h.done(t, "deploy-broker").stderr, "globalnet")
	require.Contains(t, h.done(t, "deploy-broker", "--globalnet").stderr, tells)

	record, err := broker.GlobalNetworks(t.Context(), h.client, submarinerv1.BrokerNamespace, time.Now())
	require.NoError(t, err)
	require.Empty(t, record)

	// A member that joined before brokers gave the right to announce its network.
	ctx := t.Context()
	ns := submarinerv1.BrokerNamespace
	now := time.Now()
	info, err := globalnet.Parse("100.64.0.0/20", 256)
	require.NoError(t, err)
	_, err = broker.ReserveNetwork(ctx, h.client, ns, info,
		broker.NetworkRequest{NetworkRequest: globalnet.NetworkRequest{Cluster: "west"}}, now)
	require.NoError(t, err)
	require.NoError(t, broker.LetAnnounce(ctx, h.client, ns, "west"))
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: ns + "-globalnet"}}
	require.NoError(t, h.client.Delete(ctx, policy))
	h.done(t, "deploy-broker")
	role := &rbacv1.Role{}
	require.NoError(t, h.client.Get(ctx, client.ObjectKey{Namespace: ns, Name: broker.MemberName("west")}, role))
	require.Equal(t, []string{"100.64.0.0/24"}, role.Rules[1].ResourceNames)
	require.NoError(t, h.client.Get(ctx, client.ObjectKeyFromObject(policy), policy))
	revision := func(o client.Object) int {
		n, err := strconv.Atoi(o.GetResourceVersion())
		require.NoError(t, err)
		return n
	}
	require.Less(t, revision(role), revision(policy), "the right, before the policy that refuses who has none")
	require.NoError(t, broker.SettleNetwork(ctx, h.client, ns, "west", netip.Prefix{}, now))
	require.NotContains(t, h.done(t, "deploy-broker", "--globalnet=false").stderr, "globalnet")
}
