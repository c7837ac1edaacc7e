package join_test

import (
	"bytes"
	"cmp"
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker/exchange"
	"subctl/broker/trust"
	"subctl/cluster"
	"subctl/cluster/clustertest"
	"subctl/cluster/join"
	"subctl/internal/progress"
	"subctl/policy"
	"subctl/policy/catalog"
	"subctl/policy/impact"
)

// daemonSet returns the DaemonSet of an agent.
func daemonSet(name string) *appsv1.DaemonSet {
	ds := &appsv1.DaemonSet{ObjectMeta: clustertest.In(name)}
	if name == cluster.GatewayName {
		ds.Spec.Template.Spec.NodeSelector = map[string]string{submarinerv1.GatewayNodeLabel: "true"}
	}
	ds.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	return ds
}

// nodeAt returns a node that is Ready.
func nodeAt(name string, label ...string) *corev1.Node {
	n := clustertest.Node(name, "10.89.1.1", label...)
	return &n
}

// running is the status of a pod that is ready.
func running() corev1.PodStatus {
	return corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Ready: true}}}
}

func pod(app, node string, status corev1.PodStatus) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: clustertest.In(app + "-" + node), Spec: corev1.PodSpec{NodeName: node}, Status: status}
	p.Labels = map[string]string{"app": app}
	return p
}

func waiting(reason, message string) corev1.PodStatus {
	return corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}},
	}}}
}

func connection(id string, status submarinerv1.ConnectionStatus, message string) submarinerv1.Connection {
	return submarinerv1.Connection{
		Status:        status,
		StatusMessage: message,
		Endpoint:      submarinerv1.EndpointSpec{ClusterID: id},
	}
}

// another returns the gateway of another node.
func another(status submarinerv1.HAStatus, connections ...submarinerv1.Connection) *submarinerv1.Gateway {
	g := clustertest.Gateway(status, "", connections...)
	g.Name = "n2"
	return g
}

// dead returns a gateway that has not reported for long.
func dead(g *submarinerv1.Gateway) *submarinerv1.Gateway {
	g.SetReportedAt(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	return g
}

func TestWait(t *testing.T) {
	route := daemonSet(cluster.RouteAgentName)
	gw := daemonSet(cluster.GatewayName)
	agents := []client.Object{
		nodeAt("n1", submarinerv1.GatewayNodeLabel), route, gw,
		pod(cluster.RouteAgentName, "n1", running()), pod(cluster.GatewayName, "n1", running()),
	}
	down := nodeAt("down", submarinerv1.GatewayNodeLabel)
	windows := nodeAt("windows", submarinerv1.GatewayNodeLabel)
	down.Status.Conditions[0].Status = corev1.ConditionUnknown
	windows.Labels[corev1.LabelOSStable] = "windows"
	tainted := nodeAt("n2", submarinerv1.GatewayNodeLabel)
	tainted.Spec.Taints = []corev1.Taint{{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule}}
	picky := daemonSet(cluster.GatewayName)
	picky.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Key: "other", Operator: corev1.TolerationOpExists}}
	crashed := waiting("CrashLoopBackOff", "back-off 10s")
	crashed.ContainerStatuses[0].RestartCount = 3
	crashed.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 2}
	by := func(driver string) submarinerv1.Connection {
		c := connection("east", submarinerv1.Connected, "")
		c.Driver = driver
		return c
	}
	two := slices.Concat(agents, []client.Object{
		nodeAt("n2", submarinerv1.GatewayNodeLabel), pod(cluster.RouteAgentName, "n2", running()),
		pod(cluster.GatewayName, "n2", running()),
	})
	two = slices.Clip(two)
	refused := connection("east", "error", "wireguard connects to one gateway of a cluster")
	refused.Driver = "wireguard"
	apart := clustertest.Gateway("active", "")
	apart.Status.Conditions = []metav1.Condition{{
		Type:    submarinerv1.ConditionBrokerSynced,
		Status:  metav1.ConditionFalse,
		Message: "watching clusterset default on the broker: the API server does not answer",
	}}
	changed := []impact.CableChange{
		{
			Pair: policy.Pair{X: policy.Cluster{ID: "east"}, Y: policy.Cluster{ID: "west"}},
			Then: catalog.Cable{Driver: "ipsec"},
		},
	}
	for _, test := range []struct {
		name    string
		objs    []client.Object
		present []string
		changes []impact.CableChange
		made    []string // nodes that the join has made gateways
		unseen  bool
		several bool             // whether every gateway is to be active
		clock   func() time.Time // of the API server; nil: of this machine
		before  string           // the network that the cluster announced before
		want    string           // empty: all is well
	}{
		{name: "alone", objs: append(agents, clustertest.Gateway("active", ""))},
		{
			name: "a new gateway, which its DaemonSet has not noticed", objs: append(agents,
				clustertest.Gateway("active", ""), nodeAt("n2", submarinerv1.GatewayNodeLabel),
				pod(cluster.RouteAgentName, "n2", running())),
			want: "waiting for the agents to run: out of time:\n  DaemonSet submariner-gateway on node n2: there is " +
				"no pod yet",
		},
		{
			name: "a new gateway", made: []string{"n2"}, present: []string{"east"},
			objs: append(two, clustertest.Gateway("active", "", by("vxlan")), another("active", by("vxlan"))),
		},
		{
			name: "a new standby", made: []string{"n2"}, present: []string{"east"},
			objs: append(two, clustertest.Gateway("active", "", by("vxlan")), another("passive")),
		},
		{
			name: "a new gateway that has not reported yet", made: []string{"n2"},
			objs: append(two, clustertest.Gateway("active", "")),
			want: "waiting for the agents to run: out of time:\n  gateway n2 has not reported yet",
		},
		{
			name: "a new gateway without a connection", made: []string{"n2"}, present: []string{"east"},
			objs: append(two, clustertest.Gateway("active", "", by("vxlan")), another("active")), several: true,
			want: "waiting for connections to east: out of time:\n  gateway n2: no connection to cluster \"east\" yet",
		},
		{
			name: "a new gateway that connects", made: []string{"n2"}, present: []string{"east"},
			objs: append(two, clustertest.Gateway("active", "", by("vxlan")),
				another("active", connection("east", "connecting", ""))),
			several: true,
			want:    "waiting for connections to east: out of time:\n  gateway n2: cluster \"east\": connecting",
		},
		{
			name: "a new gateway beside the one that the driver connects", made: []string{"n2"},
			present: []string{"east"}, several: true,
			objs: append(two, clustertest.Gateway("active", "", by("wireguard")), another("active", refused)),
		},
		{
			name: "a new gateway whose node is not Ready", made: []string{"down"},
			objs: append(agents, clustertest.Gateway("active", ""), down),
		},
		{
			name: "a node that is not Ready, and a Windows node",
			objs: append(agents, clustertest.Gateway("active", ""), down, windows),
		},
		{
			name: "a taint that the user's tolerations do not allow", objs: []client.Object{
				agents[0], tainted, route, picky, agents[3], agents[4], pod(cluster.RouteAgentName, "n2", running()),
				clustertest.Gateway("active", ""),
			},
			want: "waiting for the agents to run: out of time:\n  DaemonSet submariner-gateway on node n2: the node " +
				"has the taint dedicated:NoSchedule, which its pods do not tolerate: remove the taint, or add it to " +
				"spec.tolerations of the Submariner",
		},
		{
			name:   "not seen",
			objs:   append(agents, clustertest.Gateway("active", "")),
			unseen: true,
			want: "waiting for the agents to run: out of time:\n" +
				"  the gateway has not published its endpoint on the broker yet: see kubectl logs -n submariner-operator -l app=submariner-gateway",
		},
		{
			name:   "still the networks of before",
			objs:   append(agents, clustertest.Gateway("active", "")),
			before: "242.1.0.0/16",
			want: "waiting for the agents to run: out of time:\n" +
				"  the gateway has not published its networks on the broker yet: see kubectl logs -n submariner-operator -l app=submariner-gateway",
		},
		{
			name:    "connected",
			objs:    append(agents, clustertest.Gateway("active", "", connection("east", "connected", ""))),
			present: []string{"east"},
		},
		{
			name:    "still the cable of before",
			objs:    append(agents, clustertest.Gateway("active", "", by("vxlan"))),
			present: []string{"east"},
			changes: changed,
			want:    "waiting for connections to east: out of time:\n  cluster \"east\": uses vxlan (the clusters' own default)",
		},
		{
			name:    "the new cable",
			objs:    append(agents, clustertest.Gateway("active", "", by("ipsec"))),
			present: []string{"east"},
			changes: changed,
		},
		{
			name: "no image", want: "waiting for the agents to run: out of time:\n" +
				"  DaemonSet submariner-gateway: pod submariner-gateway-n1 on node n1: CrashLoopBackOff, restarted 3 " +
				"times, last exit code 2: see kubectl logs -n submariner-operator --previous submariner-gateway-n1\n" +
				"  DaemonSet submariner-routeagent: pod submariner-routeagent-n1 on node n1: ImagePullBackOff: no " +
				"such image\n" +
				"  no gateway is active yet",
			objs: []client.Object{
				agents[0],
				route,
				gw,
				pod(cluster.RouteAgentName, "n1", waiting("ImagePullBackOff", "no such image")),
				pod(cluster.GatewayName, "n1", crashed),
			},
		},
		{
			name: "no node", objs: []client.Object{nodeAt("n1"), route, gw, agents[3]},
			want: "waiting for the agents to run: out of time:\n  DaemonSet submariner-gateway: no node matches\n  no gateway is active yet",
		},
		{
			name:    "no gateway active",
			objs:    append(agents, clustertest.Gateway("passive", "")),
			present: []string{"east"},
			want:    "waiting for connections to east: out of time:\n  no gateway is active yet",
		},
		{
			name:    "the gateway is dead",
			present: []string{"east"},
			objs:    append(agents, dead(clustertest.Gateway("active", "", connection("east", "connected", "")))),
			want:    "waiting for connections to east: out of time:\n  gateway n1: not updated since 2026-03-01T12:00:00Z\n  no gateway with a recent report is active",
		},
		{
			name:    "the clock of the gateway is ahead",
			present: []string{"east"},
			objs:    append(agents, dead(clustertest.Gateway("active", "", connection("east", "connected", "")))),
			clock:   func() time.Time { return time.Date(2026, 3, 1, 11, 59, 30, 0, time.UTC) },
			want: "waiting for connections to east: out of time:\n  gateway n1: not known to be up to date: its report is of the future, 2026-03-01T12:00:00Z, as the clock of its node is wrong\n" +
				"  no gateway with a recent report is active",
		},
		{
			name: "the clock of this machine is wrong", objs: append(agents, dead(clustertest.Gateway("active", ""))),
			clock: func() time.Time { return time.Date(2026, 3, 1, 12, 0, 14, 0, time.UTC) },
		},
		{
			name:    "one of two gateways is dead",
			present: []string{"east"},
			objs: append(agents, dead(another("passive", connection("east", "connected", ""))),
				clustertest.Gateway("active", "", connection("east", "error", "no reply to pings"))),
			several: true,
			want:    "waiting for connections to east: out of time:\n  gateway n2: not updated since 2026-03-01T12:00:00Z\n  cluster \"east\": error: no reply to pings",
		},
		{
			name:    "the other one is connected",
			present: []string{"east"},
			objs: append(agents, dead(another("passive")),
				clustertest.Gateway("active", "", connection("east", "connected", ""))),
			several: true,
		},
		{
			name: "not connected", present: []string{"east", "north", "south"},
			objs: append(
				agents,
				clustertest.Gateway("active", "the broker does not answer", connection("east", "connected", ""),
					connection("north", "error", "no reply to pings")),
			),
			want: "waiting for connections to east, north, south: out of time:\n" +
				"  cluster \"north\": error: no reply to pings\n" +
				"  cluster \"south\": not connected: the gateway has not read its endpoint yet\n" +
				"  gateway n1: the broker does not answer",
		},
		{
			name: "the gateway does not reach the broker", present: []string{"east"}, objs: append(agents, apart),
			want: "waiting for connections to east: out of time:\n" +
				"  cluster \"east\": not connected: the gateway has not read its endpoint yet\n" +
				"  gateway n1: watching clusterset default on the broker: the API server does not answer",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			var said bytes.Buffer
			reserved, err := exchange.Kinds().Of(&submarinerv1.Endpoint{})
			require.NoError(t, err)
			seen := []client.Object{reserved.Empty("submariner-k8s-broker", "west", 1)}
			const network = "242.2.0.0/16"
			if !test.unseen {
				seen = append(seen, &submarinerv1.Endpoint{
					ObjectMeta: metav1.ObjectMeta{Namespace: "submariner-k8s-broker", Name: "west.0"},
					Spec: submarinerv1.EndpointSpec{
						ClusterID: "west",
						Subnets:   []string{cmp.Or(test.before, network)},
					},
				})
			}
			j := &join.Operation{
				Member: cluster.Side{
					Client: clustertest.Client(t, test.objs...),
					Clock:  test.clock,
				}, Broker: cluster.Side{Client: clustertest.Client(t, seen...)},
				Plan: &join.Plan{
					Present:    test.present,
					Cables:     test.changes,
					Gateways:   test.made,
					Submariner: clustertest.Submariner(),
					Grant:      trust.Grant{Networks: []netip.Prefix{netip.MustParsePrefix(network)}},
				}, Report: progress.New(&said),
			}
			j.Plan.Submariner.Spec.MultiActiveGatewayEnabled = test.several
			err = j.Wait(ctx)
			if test.want == "" {
				require.NoError(t, err)
				require.Contains(t, said.String(), "✓ the agents run")
				return
			}
			require.EqualError(t, err, test.want)
		})
	}
}

// An image that cannot be pulled, or that is of another program, ends the wait within seconds.
func TestWaitEndsForAWrongImage(t *testing.T) {
	never := corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{
			ExitCode: 128,
			Reason:   "StartError",
			Message:  "no such file: subctl",
		},
	}
	again := waiting("CrashLoopBackOff", "back-off 10s")
	again.ContainerStatuses[0].LastTerminationState = never
	for _, test := range []struct {
		status corev1.PodStatus
		want   string
	}{
		{waiting("ImagePullBackOff", "not found"), "ImagePullBackOff: not found"},
		{again, "StartError: no such file: subctl"},
		{
			corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{State: never}}},
			"StartError: no such file: subctl",
		},
	} {
		t.Run(test.want, func(t *testing.T) {
			t.Parallel()
			c := clustertest.Client(t, nodeAt("n1"), daemonSet(cluster.RouteAgentName), daemonSet(cluster.GatewayName),
				pod(cluster.RouteAgentName, "n1", test.status))
			p, err := normal().plan()
			require.NoError(t, err)
			op := &join.Operation{Member: cluster.Side{Client: c}, Plan: p, Report: progress.New(&bytes.Buffer{})}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			err = op.Wait(ctx)
			require.ErrorContains(t, err, "the agents cannot start:\n")
			require.ErrorContains(t, err, "pod submariner-routeagent-n1 on node n1: "+test.want+"\n")
			require.ErrorContains(t, err, "specify another image with subctl join --image")
		})
	}
}

// A cluster with a global network is not connected before the agent that allocates addresses runs,
// has allocated those of the cluster, and a ping has been answered. Why its pod does not run is
// told, in the words of the scheduler or of the API server.
func TestWaitForGlobalnet(t *testing.T) {
	pinged := connection("east", submarinerv1.Connected, "")
	pinged.LatencyRTT = &submarinerv1.LatencyRTT{Average: "1ms"}
	ready := appsv1.DeploymentStatus{UpdatedReplicas: 1, AvailableReplicas: 1, Replicas: 1}
	pending := pod(cluster.GlobalnetName, "", corev1.PodStatus{Conditions: []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
		Message: "0/1 nodes are available: 1 node(s) had untolerated taint",
	}}})
	rejected := appsv1.DeploymentStatus{Conditions: []appsv1.DeploymentCondition{{
		Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue,
		Message: `pods "x" is forbidden: exceeded quota: theirs`,
	}}}
	egress := &submarinerv1.ClusterGlobalEgressIP{ObjectMeta: metav1.ObjectMeta{Name: "cluster-egress.submariner.io"}}
	egress.Status.AllocatedIPs = []string{"242.0.0.1"}
	const none = "the globalnet agent has not allocated global addresses for this cluster yet: see subctl show " +
		"globalnet"
	for _, test := range []struct {
		name, want string
		status     appsv1.DeploymentStatus
		connection submarinerv1.Connection
		more       []client.Object
	}{
		{
			"not scheduled",
			"Deployment submariner-globalnet: pod submariner-globalnet-: not scheduled: 0/1 nodes are " +
				"available: 1 node(s) had untolerated taint\n  " + none,
			appsv1.DeploymentStatus{},
			pinged,
			[]client.Object{pending},
		},
		{
			"rejected", "Deployment submariner-globalnet: its pod is not created: pods \"x\" is forbidden: exceeded " +
				"quota: theirs: raise the ResourceQuota that is named here, or delete what uses it up\n  " + none,
			rejected, pinged, nil,
		},
		{"no address yet", none, ready, pinged, nil},
		{
			"no ping yet", `cluster "east": no ping has been answered yet`, ready,
			connection("east", submarinerv1.Connected, ""),
			[]client.Object{egress},
		},
		{"connected", "the gateway has not published its endpoint", ready, pinged, []client.Object{egress}},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := &appsv1.Deployment{ObjectMeta: clustertest.In(cluster.GlobalnetName), Status: test.status}
			c := clustertest.Client(t, append(test.more, nodeAt("n1", submarinerv1.GatewayNodeLabel), d,
				daemonSet(cluster.RouteAgentName), daemonSet(cluster.GatewayName),
				pod(cluster.RouteAgentName, "n1", running()), pod(cluster.GatewayName, "n1", running()),
				clustertest.Gateway("active", "", test.connection))...)
			sub := clustertest.Submariner()
			sub.Spec.GlobalCIDR = "242.0.0.0/16"
			sub.Spec.ConnectionHealthCheck = &v1alpha1.HealthCheckSpec{Enabled: true}
			j := &join.Operation{
				Member: cluster.Side{Client: c}, Broker: cluster.Side{Client: clustertest.Client(t)},
				Plan: &join.Plan{Present: []string{"east"}, Submariner: sub}, Report: progress.New(&bytes.Buffer{}),
			}
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			require.ErrorContains(t, j.Wait(ctx), "out of time:\n  "+test.want)
		})
	}
}
