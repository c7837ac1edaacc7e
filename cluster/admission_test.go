package cluster_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/agent/mesh/members"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cluster"
	"subctl/cluster/clustertest"
	"subctl/internal/kube"
	"subctl/internal/kubetest"
)

// joined applies what a joined cluster has, without the agents.
func joined(t *testing.T, server *kubetest.Server) client.Client {
	t.Helper()
	server.InstallCRDs(t)
	admin := server.Client(t)
	for _, obj := range clustertest.Render(t, clustertest.Submariner()) {
		switch kube.KindOf(obj) {
		case "CustomResourceDefinition", "Submariner", "DaemonSet":
		default:
			require.NoError(t, kube.Apply(t.Context(), admin, kube.FieldOwner, obj))
		}
	}
	return admin
}

// agentOf returns a client with the token of a service account that is bound to a pod on a
// node, as the kubelet of the node gets it; without a node the token is bound to no pod.
func agentOf(t *testing.T, server *kubetest.Server, account, node string) client.Client {
	t.Helper()
	admin := server.Client(t)
	request := &authenticationv1.TokenRequest{}
	if node != "" {
		require.NoError(
			t,
			client.IgnoreAlreadyExists(
				admin.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}})),
		)
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, GenerateName: account + "-"},
			Spec: corev1.PodSpec{
				NodeName:           node,
				ServiceAccountName: account,
				Containers:         []corev1.Container{{Name: "agent", Image: "none"}},
			},
		}
		require.NoError(t, admin.Create(t.Context(), pod))
		t.Cleanup(func() { _ = admin.Delete(context.WithoutCancel(t.Context()), pod, client.GracePeriodSeconds(0)) })
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{
			APIVersion: "v1",
			Kind:       "Pod",
			Name:       pod.Name,
			UID:        pod.UID,
		}
	}
	sa := &corev1.ServiceAccount{ObjectMeta: clustertest.In(account)}
	require.NoError(t, admin.SubResource("token").Create(t.Context(), sa, request))
	return kubetest.Client(t, server.As(request.Status.Token))
}

// denied waits until the admission policies are in force: until c, with a valid request that
// they deny, is denied.
func denied(t *testing.T, c client.Client, obj client.Object) {
	t.Helper()
	require.Eventually(t, func() bool {
		return apierrors.IsForbidden(c.Create(t.Context(), obj.DeepCopyObject().(client.Object), client.DryRunAll))
	}, 30*time.Second, 50*time.Millisecond)
}

func endpointOf(id, host, name string) *submarinerv1.Endpoint {
	return &submarinerv1.Endpoint{ObjectMeta: clustertest.In(name), Spec: submarinerv1.EndpointSpec{
		ClusterID: id, CableName: name, Hostname: host, PrivateIP: "192.0.2.1", Backend: "vxlan", Subnets: []string{},
	}}
}

// draining returns an Endpoint with a setting of a driver, and what it announces about its way out
// of service; empty: nothing.
func draining(e *submarinerv1.Endpoint, announced string) *submarinerv1.Endpoint {
	out := e.DeepCopy()
	if out.Spec.BackendConfig = map[string]string{"a-setting": "1"}; announced != "" {
		out.Spec.BackendConfig[submarinerv1.BackendDrain] = announced
	}
	return out
}

func at(ip string, e *submarinerv1.Endpoint) *submarinerv1.Endpoint {
	out := e.DeepCopy()
	out.Spec.PrivateIP = ip
	return out
}

func labelledWith(e *submarinerv1.Endpoint, key, value string) *submarinerv1.Endpoint {
	e.Labels = map[string]string{key: value}
	return e
}

func routeAgentOf(node string) *submarinerv1.RouteAgent {
	return &submarinerv1.RouteAgent{
		ObjectMeta: clustertest.In(node),
		Status:     submarinerv1.RouteAgentStatus{RemoteEndpoints: []submarinerv1.RemoteEndpoint{}},
	}
}

// saying returns a RouteAgent with a message of some bytes.
func saying(r *submarinerv1.RouteAgent, size int) *submarinerv1.RouteAgent {
	r.Status.StatusFailure = strings.Repeat("x", size)
	return r
}

func annotatedWith(r *submarinerv1.RouteAgent, text string) *submarinerv1.RouteAgent {
	r.Annotations = map[string]string{"a": text}
	return r
}

func gatewayOf(node string) *submarinerv1.Gateway {
	return &submarinerv1.Gateway{ObjectMeta: clustertest.In(node), Status: submarinerv1.GatewayStatus{
		HAStatus:      submarinerv1.HAStatusActive,
		LocalEndpoint: endpointOf("west", node, "west-a").Spec,
		Connections:   []submarinerv1.Connection{},
	}}
}

func leaseOf(name, holder string) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: clustertest.In(name),
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder},
	}
}

func eventAbout(kind, name string) *eventsv1.Event {
	return &eventsv1.Event{
		ObjectMeta: clustertest.In(
			"an-event"),
		EventTime:           metav1.NowMicro(),
		ReportingController: "subctl",
		ReportingInstance:   "subctl-n1",
		Action:              "Synced",
		Reason:              "Failed",
		Type:                corev1.EventTypeWarning,
		Regarding: corev1.ObjectReference{
			APIVersion: "submariner.io/v1",
			Kind:       kind,
			Name:       name,
			Namespace:  cluster.Namespace,
		},
	}
}

// attempt is a request of an agent that runs on node n1.
type attempt struct {
	name   string
	before client.Object // what exists; nil for a creation
	after  client.Object // what the agent writes; nil for a deletion
	denied string        // part of the answer; empty if it is allowed
}

const byRBAC = "cannot delete resource"

// What an agent may write, with the token of its pod, about its own node and about others:
// kind × verb × object.
func TestHostileAgent(t *testing.T) {
	server := kubetest.Shared(t)
	admin := joined(t, server)
	me := submarinerv1.LeaseHolder("n1")
	sibling := submarinerv1.LeaseHolder("n2")
	const lock = submarinerv1.GatewayLease
	own := endpointOf("west", "n1", "west-a")
	theirs := endpointOf("west", "n2", "west-a")
	foreign := endpointOf("east", "n2", "east-a")
	for account, attempts := range map[string][]attempt{
		cluster.RouteAgentName: {
			{"create its own RouteAgent", nil, routeAgentOf("n1"), ""},
			{"create the RouteAgent of another node", nil, routeAgentOf("n2"), "may not write the RouteAgent of n2"},
			{"change its own RouteAgent", routeAgentOf("n1"), changed(routeAgentOf("n1")), ""},
			{
				"change the RouteAgent of another node",
				routeAgentOf("n2"),
				changed(routeAgentOf("n2")),
				"may not write the RouteAgent of n2",
			},
			{"delete the RouteAgent of another node", routeAgentOf("n2"), nil, byRBAC},
			{"create the largest that an agent writes", nil, saying(routeAgentOf("n1"), 176<<10), ""},
			{
				"create a huge one",
				nil,
				saying(routeAgentOf("n1"), 200<<10),
				"a RouteAgent may have 196608 bytes at most",
			},
			{
				"make it huge",
				routeAgentOf("n1"),
				saying(routeAgentOf("n1"), 1<<20),
				"a RouteAgent may have 196608 bytes at most",
			},
			{
				"make it huge by an annotation",
				routeAgentOf("n1"),
				annotatedWith(routeAgentOf("n1"), strings.Repeat("😀", 50<<10)),
				"a RouteAgent may have 196608 bytes at most",
			},
			{"report about itself", nil, eventAbout("RouteAgent", "n1"), ""},
			{"report about another node", nil, eventAbout("RouteAgent", "n2"), "may not report about RouteAgent/n2"},
			{"report about a gateway", nil, eventAbout("Gateway", "n1"), "may not report about Gateway/n1"},
			{"write an Endpoint", nil, own, "cannot"},
			{"write a Gateway", nil, gatewayOf("n1"), "cannot"},
		},
		cluster.GatewayName: {
			{"create its own Gateway", nil, gatewayOf("n1"), ""},
			{"create the Gateway of another node", nil, gatewayOf("n2"), "may not write the Gateway of n2"},
			{"change its own Gateway", gatewayOf("n1"), changed(gatewayOf("n1")), ""},
			{
				"change the Gateway of another node",
				gatewayOf("n2"),
				changed(gatewayOf("n2")),
				"may not write the Gateway of n2",
			},
			{"delete the Gateway of a lost node", gatewayOf("n2"), nil, ""},
			{"write a RouteAgent", nil, routeAgentOf("n1"), "cannot"},
			{"create its own Endpoint", nil, own, ""},
			{
				"create the Endpoint of another node",
				nil,
				theirs,
				"may not write an Endpoint of this cluster for node n2",
			},
			{"change its own Endpoint", own, changed(own), ""},
			{"change the Endpoint of another node", theirs, changed(theirs), "of this cluster for node n2"},
			{"succeed another node at its address", theirs, own, ""},
			{"announce that another gateway is a standby", theirs, members.AsStandby(theirs), ""},
			{
				"announce that of an Endpoint with settings",
				draining(theirs, ""),
				members.AsStandby(draining(theirs, "")),
				"",
			},
			{
				"announce that of one that is draining",
				draining(theirs, submarinerv1.Draining),
				members.AsStandby(draining(theirs, submarinerv1.Draining)),
				"",
			},
			{
				"announce that of one that is drained",
				draining(theirs, submarinerv1.Drained),
				members.AsStandby(draining(theirs, submarinerv1.Drained)),
				"of this cluster for node n2",
			},
			{
				"announce that another gateway is drained",
				theirs,
				draining(theirs, submarinerv1.Drained),
				"of this cluster for node n2",
			},
			{
				"put another gateway into service",
				members.AsStandby(theirs),
				draining(theirs, ""),
				"of this cluster for node n2",
			},
			{
				"change a setting with that",
				draining(theirs, ""),
				members.AsStandby(theirs),
				"of this cluster for node n2",
			},
			{
				"change the address with that",
				theirs,
				members.AsStandby(at("192.0.2.66", theirs)),
				"of this cluster for node n2",
			},
			{
				"label it with that",
				theirs,
				labelledWith(members.AsStandby(theirs), submarinerv1.ClusterIDLabel, "east"),
				"of this cluster for node n2",
			},
			{"create the Endpoint of a standby", nil, members.AsStandby(theirs), "of this cluster for node n2"},
			{"give its own Endpoint to another node", own, theirs, "of this cluster for node n2"},
			{"delete the Endpoint of a lost node", theirs, nil, ""},
			{"copy the Endpoint of another cluster", nil, foreign, ""},
			{"change a copy", foreign, changed(foreign), ""},
			{
				"make a copy an Endpoint of another node",
				foreign,
				endpointOf("west", "n2", "east-a"),
				"of this cluster for node n2",
			},
			{"take the Lease first", nil, leaseOf(lock, me), ""},
			{
				"take the Lease for another node",
				nil,
				leaseOf(lock, sibling),
				"may take the Lease submariner-gateway-lock for itself, and release its own",
			},
			{"create another Lease", nil, leaseOf("kube-scheduler", me), "may not write the Lease kube-scheduler"},
			{"create the Lease of its node", nil, leaseOf(submarinerv1.NodeLease("n1"), me), ""},
			{
				"create the Lease of its node for another node",
				nil,
				leaseOf(submarinerv1.NodeLease("n1"), sibling),
				"may take the Lease submariner-gateway-lock-n1 for itself",
			},
			{
				"renew the Lease of its node",
				leaseOf(submarinerv1.NodeLease("n1"), me),
				changed(leaseOf(submarinerv1.NodeLease("n1"), me)),
				"",
			},
			{
				"take back the Lease of its node",
				leaseOf(submarinerv1.NodeLease("n1"), sibling),
				leaseOf(submarinerv1.NodeLease("n1"), me),
				"may take the Lease submariner-gateway-lock-n1 for itself",
			},
			{
				"create the Lease of another node",
				nil,
				leaseOf(submarinerv1.NodeLease("n2"), me),
				"may not write the Lease submariner-gateway-lock-n2",
			},
			{
				"renew the Lease of a sibling",
				leaseOf(submarinerv1.NodeLease("n2"), sibling),
				changed(leaseOf(submarinerv1.NodeLease("n2"), sibling)),
				"may not write the Lease submariner-gateway-lock-n2",
			},
			{
				"take the Lease of a sibling",
				leaseOf(submarinerv1.NodeLease("n2"), sibling),
				leaseOf(submarinerv1.NodeLease("n2"), me),
				"may not write the Lease submariner-gateway-lock-n2",
			},
			{
				"release the Lease of a sibling",
				leaseOf(submarinerv1.NodeLease("n2"), sibling),
				leaseOf(submarinerv1.NodeLease("n2"), ""),
				"may not write the Lease submariner-gateway-lock-n2",
			},
			{"delete the Lease of a sibling", leaseOf(submarinerv1.NodeLease("n2"), sibling), nil, byRBAC},
			{
				"create a Lease that begins like its own",
				nil,
				leaseOf(submarinerv1.NodeLease("n1")+"2", me),
				"may not write the Lease submariner-gateway-lock-n12",
			},
			{
				"change another Lease",
				leaseOf("another", "its-holder"),
				leaseOf("another", me),
				"may not write the Lease another",
			},
			{"take the Lease over", leaseOf(lock, sibling), leaseOf(lock, me), ""},
			{
				"renew the Lease of another node",
				leaseOf(lock, sibling),
				leaseOf(lock, sibling),
				"may take the Lease submariner-gateway-lock for itself, and release its own",
			},
			{
				"release the Lease of another node",
				leaseOf(lock, sibling),
				leaseOf(lock, ""),
				"may take the Lease submariner-gateway-lock for itself, and release its own",
			},
			{"release its Lease", leaseOf(lock, me), leaseOf(lock, ""), ""},
			{
				"give its Lease away",
				leaseOf(lock, me),
				leaseOf(lock, sibling),
				"may take the Lease submariner-gateway-lock for itself, and release its own",
			},
			{"report about itself", nil, eventAbout("Gateway", "n1"), ""},
			{"report about a policy", nil, eventAbout("CablePolicies", "default"), ""},
			{"report about another gateway", nil, eventAbout("Gateway", "n2"), "may not report about Gateway/n2"},
			{"report about a node", nil, eventAbout("Node", "n1"), "may not report about Node/n1"},
		},
	} {
		agent := agentOf(t, server, account, "n1")
		denied(t, agent, eventAbout("Node", "n1"))
		for _, test := range attempts {
			t.Run(account+"/"+test.name, func(t *testing.T) { test.run(t, admin, agent) })
		}
	}
}

// The speaker announces that a gateway that it has replaced is a standby, and this gateway takes
// that back when it is the active one again. An Endpoint that was deleted meanwhile is not created
// again.
func TestReplacedGatewayIsAStandby(t *testing.T) {
	server := kubetest.Shared(t)
	admin := joined(t, server)
	speaker := agentOf(t, server, cluster.GatewayName, "n1")
	other := agentOf(t, server, cluster.GatewayName, "n2")
	denied(t, speaker, eventAbout("Node", "n1"))
	const owner = kube.FieldOwner + "-gateway"
	active := draining(endpointOf("west", "n2", "west-b"), "")
	read := func() *submarinerv1.Endpoint {
		e := &submarinerv1.Endpoint{}
		require.NoError(t, admin.Get(t.Context(), client.ObjectKeyFromObject(active), e))
		return e
	}
	require.NoError(t, kube.Apply(t.Context(), other, owner, active))
	marked := members.AsStandby(read())
	require.NoError(t, kube.Apply(t.Context(), speaker, owner, marked))
	require.Equal(t, marked.Spec, read().Spec)
	require.NoError(t, kube.Apply(t.Context(), other, owner, active))
	require.Equal(t, active.Spec, read().Spec)
	require.NoError(t, admin.Delete(t.Context(), active))
	require.Error(t, kube.Apply(t.Context(), speaker, owner, marked))
	require.True(t,
		apierrors.IsNotFound(admin.Get(t.Context(), client.ObjectKeyFromObject(active), &submarinerv1.Endpoint{})))
}

// A gateway writes the status of the Submariner, except the network plugin, which decides about the
// plans of all nodes.
func TestHostileStatus(t *testing.T) {
	server := kubetest.Shared(t)
	admin := joined(t, server)
	agent := agentOf(t, server, cluster.GatewayName, "n1")
	denied(t, agent, eventAbout("Node", "n1"))
	sub := clustertest.Submariner()
	sub.ObjectMeta = clustertest.In(v1alpha1.SubmarinerName)
	require.NoError(t, admin.Create(t.Context(), sub))
	t.Cleanup(func() { _ = admin.Delete(context.WithoutCancel(t.Context()), sub) })
	status := func(c client.Client, text string) error {
		return c.Status().Patch(t.Context(), sub.DeepCopy(),
			client.RawPatch(types.MergePatchType, []byte(`{"status":`+text+`}`)))
	}
	require.NoError(t, status(agent, `{"clusterID":"west"}`))
	require.NoError(t, status(admin, `{"networkPlugin":"flannel"}`))
	require.NoError(t, status(agent, `{"natEnabled":true,"networkPlugin":"flannel"}`))
	for _, text := range []string{`{"networkPlugin":"calico"}`, `{"networkPlugin":null}`} {
		err := status(agent, text)
		require.True(t, apierrors.IsForbidden(err), "%v", err)
		require.ErrorContains(t, err, "the gateway of node n1 may not change the network plugin of the Submariner")
	}
	require.NoError(
		t,
		kube.ApplyStatus(
			t.Context(),
			agent,
			"subctl-gateway",
			&v1alpha1.Submariner{
				ObjectMeta: clustertest.In(sub.Name),
				Status:     v1alpha1.SubmarinerStatus{ClusterID: "west"},
			},
		),
	)
	require.True(
		t,
		apierrors.IsForbidden(
			agent.Patch(t.Context(), sub.DeepCopy(),
				client.RawPatch(types.MergePatchType, []byte(`{"spec":{"natEnabled":true}}`))),
		),
	)
}

// The name of the Lease of a node with a very long name ends in a hash. A sibling whose name begins
// with the same bytes may only create it first, and never takes it.
func TestHostileLeaseOfALongName(t *testing.T) {
	server := kubetest.Shared(t)
	admin := joined(t, server)
	long := strings.TrimSuffix(strings.Repeat(strings.Repeat("n", 49)+".", 5), ".") // 249 bytes
	node := long + "-a"
	like := long + "-b"
	unlike := "m" + long + "-a"
	agent := agentOf(t, server, cluster.GatewayName, node)
	denied(t, agent, eventAbout("Node", "n1"))
	lease := func(of, holder string) *coordinationv1.Lease {
		return leaseOf(submarinerv1.NodeLease(of), submarinerv1.LeaseHolder(holder))
	}
	for _, test := range []attempt{
		{"its own", nil, lease(node, node), ""},
		{"renew its own", lease(node, node), changed(lease(node, node)), ""},
		{"take a sibling's", lease(like, like), lease(like, node), "for itself, and release its own"},
		{"renew a sibling's", lease(like, like), changed(lease(like, like)), "for itself, and release its own"},
		{
			"release a sibling's",
			lease(like, like),
			leaseOf(submarinerv1.NodeLease(like), ""),
			"for itself, and release its own",
		},
		{"create another one's", nil, lease(unlike, node), "may not write the Lease"},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, admin, agent) })
	}
}

func (a attempt) run(t *testing.T, admin, agent client.Client) {
	object := a.after
	if object == nil {
		object = a.before
	}
	object = object.DeepCopyObject().(client.Object)
	t.Cleanup(func() { _ = admin.Delete(context.WithoutCancel(t.Context()), object) })
	if a.before != nil {
		before := a.before.DeepCopyObject().(client.Object)
		require.NoError(t, admin.Create(t.Context(), before))
		object.SetResourceVersion(before.GetResourceVersion())
	}
	var err error
	switch {
	case a.before == nil:
		err = agent.Create(t.Context(), object)
	case a.after == nil:
		err = agent.Delete(t.Context(), object)
	default:
		err = agent.Update(t.Context(), object)
	}
	if a.denied == "" {
		require.NoError(t, err)
		return
	}
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	require.ErrorContains(t, err, a.denied)
}

// changed returns a copy of obj with an annotation.
func changed[T client.Object](obj T) T {
	out := obj.DeepCopyObject().(T)
	out.SetAnnotations(map[string]string{"changed": "true"})
	return out
}

// A token that does not say on which node its pod runs has no rights to write: whoever may
// create tokens of the agents' service accounts is no agent.
func TestHostileUnboundToken(t *testing.T) {
	server := kubetest.Shared(t)
	joined(t, server)
	denied(t, agentOf(t, server, cluster.GatewayName, "n3"), eventAbout("Node", "n1"))
	for account, objs := range map[string][]client.Object{
		cluster.RouteAgentName: {routeAgentOf("n1"), eventAbout("RouteAgent", "n1")},
		cluster.GatewayName: {
			gatewayOf("n1"),
			endpointOf("west", "n1", "west-a"),
			endpointOf("east", "n2", "east-a"),
			leaseOf(submarinerv1.GatewayLease, submarinerv1.LeaseHolder("n1")),
		},
	} {
		agent := agentOf(t, server, account, "")
		for _, obj := range objs {
			err := agent.Create(t.Context(), obj)
			require.ErrorContains(t, err, "names no node", "%s %T", account, obj)
		}
	}
}

// Server-side apply, which is how agents write, is a patch or a creation.
func TestHostileApply(t *testing.T) {
	server := kubetest.Shared(t)
	admin := joined(t, server)
	agent := agentOf(t, server, cluster.RouteAgentName, "n1")
	denied(t, agent, eventAbout("Node", "n1"))
	for _, node := range []string{"n1", "n2"} {
		t.Cleanup(func() { _ = admin.Delete(context.WithoutCancel(t.Context()), routeAgentOf(node)) })
	}
	require.NoError(t, kube.Apply(t.Context(), agent, "subctl-route", routeAgentOf("n1")))
	require.NoError(t, kube.Apply(t.Context(), agent, "subctl-route", changed(routeAgentOf("n1"))))
	require.ErrorContains(t, kube.Apply(t.Context(), agent, "subctl-route", routeAgentOf("n2")),
		"may not write the RouteAgent of n2")
	require.NoError(t, admin.Create(t.Context(), routeAgentOf("n2")))
	require.ErrorContains(t, kube.Apply(t.Context(), agent, "subctl-route", changed(routeAgentOf("n2"))),
		"may not write the RouteAgent of n2")

	event := eventAbout("RouteAgent", "n2")
	require.NoError(t, admin.Create(t.Context(), event))
	t.Cleanup(func() { _ = admin.Delete(context.WithoutCancel(t.Context()), event) })
	count := client.RawPatch(types.MergePatchType,
		[]byte(`{"series":{"count":7,"lastObservedTime":"2026-01-01T00:00:00.000000Z"}}`))
	require.ErrorContains(t, agent.Patch(t.Context(), event.DeepCopy(), count), "may not report about RouteAgent/n2")
}

// Clusterset membership is in the grant, and Cluster.spec.cluster_sets only shows it: whoever edits
// the field is told so.
func TestNobodyEditsClusterSets(t *testing.T) {
	server := kubetest.Shared(t)
	admin := joined(t, server)
	gateway := agentOf(t, server, cluster.GatewayName, "n1")
	own := &submarinerv1.Cluster{ObjectMeta: clustertest.In("west"), Spec: submarinerv1.ClusterSpec{
		ClusterID: "west", ClusterCIDR: []string{}, ServiceCIDR: []string{}, GlobalCIDR: []string{},
		ClusterSets: []string{"default"},
	}}
	require.NoError(t, gateway.Create(t.Context(), own))
	t.Cleanup(func() { _ = admin.Delete(context.WithoutCancel(t.Context()), own) })
	patch := func(c client.Client, text string) error {
		return c.Patch(t.Context(), own.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(text)),
			client.DryRunAll)
	}
	const remedy = "subctl clusterset add or subctl clusterset remove"
	require.Eventually(t, func() bool { return patch(admin, `{"spec":{"cluster_sets":["prod"]}}`) != nil },
		30*time.Second, 50*time.Millisecond)
	require.ErrorContains(t, patch(admin, `{"spec":{"cluster_sets":["default","prod"]}}`), remedy)
	require.ErrorContains(t, patch(admin, `{"spec":{"cluster_sets":null}}`), remedy)
	require.NoError(t, patch(admin, `{"metadata":{"labels":{"site":"edge"}}}`), "labels are free")
	require.NoError(t, patch(gateway, `{"spec":{"cluster_sets":["prod"]}}`), "the speaker writes what it has found")
}

// Nobody but the agents changes the labels by which they tell whose an object is: kubectl label is
// refused, with the remedy. All other labels are free, and the agents write what they copy.
func TestReservedLabels(t *testing.T) {
	server := kubetest.Shared(t)
	admin := joined(t, server)
	gateway := agentOf(t, server, cluster.GatewayName, "n1")
	own := &submarinerv1.Cluster{
		ObjectMeta: clustertest.In("west"),
		Spec: submarinerv1.ClusterSpec{
			ClusterID:   "west",
			ClusterCIDR: []string{},
			ServiceCIDR: []string{},
			GlobalCIDR:  []string{},
		},
	}
	foreign := own.DeepCopy()
	foreign.Name = "east"
	foreign.Spec.ClusterID = "east"
	foreign.Labels = map[string]string{submarinerv1.ClusterIDLabel: "east", "site": "edge"}
	for _, o := range []client.Object{own, foreign, endpointOf("west", "n1", "west-a")} {
		require.NoError(t, gateway.Create(t.Context(), o))
		t.Cleanup(func() { _ = admin.Delete(context.WithoutCancel(t.Context()), o) })
	}
	label := func(c client.Client, o client.Object, labels string) error {
		return c.Patch(t.Context(), o.DeepCopyObject().(client.Object),
			client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":`+labels+`}}`)), client.DryRunAll)
	}
	require.Eventually(t, func() bool { return label(admin, own, `{"submariner-io/clusterID":"west"}`) != nil },
		30*time.Second, 50*time.Millisecond)
	const remedy = ": only the agents set labels that begin with submariner-io/ or submariner.io/: choose another name"
	for _, test := range []struct {
		name   string
		object client.Object
		labels string
		denied string // empty: it is allowed
	}{
		{
			"the cluster's own ID",
			own,
			`{"submariner-io/clusterID":"west"}`,
			"reserved labels: submariner-io/clusterID" + remedy,
		},
		{
			"the ID of another cluster",
			own,
			`{"submariner-io/clusterID":"east","site":"x"}`,
			"reserved labels: submariner-io/clusterID" + remedy,
		},
		{
			"another reserved label",
			own,
			`{"submariner.io/clusterset":"blue"}`,
			"reserved labels: submariner.io/clusterset" + remedy,
		},
		{
			"an Endpoint",
			endpointOf("west", "n1", "west-a"),
			`{"submariner-io/clusterID":"west"}`,
			"reserved labels: submariner-io/clusterID" + remedy,
		},
		{
			"a copy loses its label",
			foreign,
			`{"submariner-io/clusterID":null}`,
			"reserved labels: submariner-io/clusterID" + remedy,
		},
		{
			"a copy changes its label",
			foreign,
			`{"submariner-io/clusterID":"north"}`,
			"reserved labels: submariner-io/clusterID" + remedy,
		},
		{"other labels", own, `{"site":"cloud"}`, ""},
		{"other labels of a copy", foreign, `{"site":null,"tier":"1"}`, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			require.NoError(t, label(gateway, test.object, test.labels), "the agents may")
			err := label(admin, test.object, test.labels)
			if test.denied == "" {
				require.NoError(t, err)
				return
			}
			require.True(t, apierrors.IsForbidden(err), "%v", err)
			require.ErrorContains(t, err, test.denied)
		})
	}
}
