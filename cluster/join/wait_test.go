package join_test

import (
	"bytes"
	"cmp"
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker/exchange"
	"subctl/broker/trust"
	"subctl/cluster"
	"subctl/cluster/clustertest"
	"subctl/cluster/join"
	"subctl/internal/progress"
	"subctl/policy"
	"subctl/policy/catalog"
)

func daemonSet(name string, want, ready int32) *appsv1.DaemonSet {
	return &appsv1.DaemonSet{ObjectMeta: clustertest.In(name), Status: appsv1.DaemonSetStatus{
		DesiredNumberScheduled: want, UpdatedNumberScheduled: want, NumberReady: ready,
	}}
}

func pod(app, node string, status corev1.PodStatus) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: clustertest.In(app + "-x"), Spec: corev1.PodSpec{NodeName: node}, Status: status}
	p.Labels = map[string]string{"app": app}
	return p
}

func waiting(reason, message string) corev1.PodStatus {
	return corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}},
	}}}
}

func connection(id string, status submarinerv1.ConnectionStatus, message string) submarinerv1.Connection {
	return submarinerv1.Connection{Status: status, StatusMessage: message, Endpoint: submarinerv1.EndpointSpec{ClusterID: id}}
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
	agents := []client.Object{daemonSet(cluster.RouteAgentName, 2, 2), daemonSet(cluster.GatewayName, 1, 1)}
	crashed := waiting("CrashLoopBackOff", "back-off 10s")
	crashed.ContainerStatuses[0].RestartCount = 3
	crashed.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 2}
	by := func(driver string) submarinerv1.Connection {
		c := connection("east", submarinerv1.Connected, "")
		c.Driver = driver
		return c
	}
	running := pod(cluster.GatewayName, "n2", corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Ready: true}}})
	refused := connection("east", "error", "wireguard connects to one gateway of a cluster")
	refused.Driver = "wireguard"
	apart := clustertest.Gateway("active", "")
	apart.Status.Conditions = []metav1.Condition{{
		Type: submarinerv1.ConditionBrokerSynced, Status: metav1.ConditionFalse, Message: "watching clusterset default on the broker: the API server does not answer",
	}}
	changed := []catalog.CableChange{{Pair: policy.Pair{X: policy.Cluster{ID: "east"}, Y: policy.Cluster{ID: "west"}}, Then: catalog.Cable{Driver: "ipsec"}}}
	for _, test := range []struct {
		name    string
		objs    []client.Object
		present []string
		changes []catalog.CableChange
		made    []string // nodes that the join has made gateways
		unseen  bool
		several bool             // whether every gateway is to be active
		clock   func() time.Time // of the API server; nil: of this machine
		before  string           // the network that the cluster announced before
		want    string           // empty: all is well
	}{
		{name: "alone", objs: append(agents, clustertest.Gateway("active", ""))},
		{
			name: "a new gateway, which its DaemonSet has not noticed", objs: append(agents, clustertest.Gateway("active", "")), made: []string{"n2"},
			want: "waiting for the agents to run: out of time:\n  DaemonSet submariner-gateway: there is no pod on node n2 yet: do its taints allow one?",
		},
		{
			name: "a new gateway", made: []string{"n2"}, present: []string{"east"}, objs: append(agents, clustertest.Gateway("active", "", by("vxlan")), running, another("active", by("vxlan"))),
		},
		{name: "a new standby", made: []string{"n2"}, present: []string{"east"}, objs: append(agents, clustertest.Gateway("active", "", by("vxlan")), running, another("passive"))},
		{
			name: "a new gateway that has not reported yet", made: []string{"n2"}, objs: append(agents, clustertest.Gateway("active", ""), running),
			want: "waiting for the agents to run: out of time:\n  gateway n2 has not reported yet",
		},
		{
			name: "a new gateway without a connection", made: []string{"n2"}, present: []string{"east"},
			objs: append(agents, clustertest.Gateway("active", "", by("vxlan")), running, another("active")), several: true,
			want: "waiting for connections to east: out of time:\n  gateway n2: no connection to cluster \"east\" yet",
		},
		{
			name: "a new gateway that connects", made: []string{"n2"}, present: []string{"east"},
			objs: append(agents, clustertest.Gateway("active", "", by("vxlan")), running, another("active", connection("east", "connecting", ""))), several: true,
			want: "waiting for connections to east: out of time:\n  gateway n2: cluster \"east\": connecting",
		},
		{
			name: "a new gateway beside the one that the driver connects", made: []string{"n2"}, present: []string{"east"}, several: true,
			objs: append(agents, clustertest.Gateway("active", "", by("wireguard")), running, another("active", refused)),
		},
		{name: "not seen", objs: append(agents, clustertest.Gateway("active", "")), unseen: true, want: "waiting for the agents to run: out of time:\n" +
			"  the gateway has not published its endpoint on the broker yet: see kubectl logs -n submariner-operator -l app=submariner-gateway"},
		{name: "still the networks of before", objs: append(agents, clustertest.Gateway("active", "")), before: "242.1.0.0/16", want: "waiting for the agents to run: out of time:\n" +
			"  the gateway has not published its networks on the broker yet: see kubectl logs -n submariner-operator -l app=submariner-gateway"},
		{name: "connected", objs: append(agents, clustertest.Gateway("active", "", connection("east", "connected", ""))), present: []string{"east"}},
		{
			name: "still the cable of before", objs: append(agents, clustertest.Gateway("active", "", by("vxlan"))), present: []string{"east"}, changes: changed,
			want: "waiting for connections to east: out of time:\n  cluster \"east\": uses vxlan (the clusters' own default)",
		},
		{name: "the new cable", objs: append(agents, clustertest.Gateway("active", "", by("ipsec"))), present: []string{"east"}, changes: changed},
		{
			name: "no image", want: "waiting for the agents to run: out of time:\n" +
				"  DaemonSet submariner-routeagent: 0 of 2 pods are ready\n" +
				"    pod submariner-routeagent-x on node n1: ImagePullBackOff: no such image\n" +
				"  DaemonSet submariner-gateway: 0 of 1 pods are ready\n" +
				"    pod submariner-gateway-x on node n1: CrashLoopBackOff, restarted 3 times, last exit code 2: see kubectl logs -n submariner-operator --previous submariner-gateway-x\n" +
				"  no gateway is active yet",
			objs: []client.Object{
				daemonSet(cluster.RouteAgentName, 2, 0), daemonSet(cluster.GatewayName, 1, 0),
				pod(cluster.RouteAgentName, "n1", waiting("ImagePullBackOff", "no such image")), pod(cluster.GatewayName, "n1", crashed),
			},
		},
		{
			name: "no node", objs: []client.Object{agents[0], daemonSet(cluster.GatewayName, 0, 0)},
			want: "waiting for the agents to run: out of time:\n  DaemonSet submariner-gateway: no node matches\n  no gateway is active yet",
		},
		{
			name: "no gateway active", objs: append(agents, clustertest.Gateway("passive", "")), present: []string{"east"},
			want: "waiting for connections to east: out of time:\n  no gateway is active yet",
		},
		{
			name: "the gateway is dead", present: []string{"east"}, objs: append(agents, dead(clustertest.Gateway("active", "", connection("east", "connected", "")))),
			want: "waiting for connections to east: out of time:\n  gateway n1: not updated since 2026-03-01T12:00:00Z\n  no gateway with a recent report is active",
		},
		{
			name: "the clock of the gateway is ahead", present: []string{"east"}, objs: append(agents, dead(clustertest.Gateway("active", "", connection("east", "connected", "")))),
			clock: func() time.Time { return time.Date(2026, 3, 1, 11, 59, 30, 0, time.UTC) },
			want: "waiting for connections to east: out of time:\n  gateway n1: not known to be up to date: its report is of the future, 2026-03-01T12:00:00Z, as the clock of its node is wrong\n" +
				"  no gateway with a recent report is active",
		},
		{
			name: "the clock of this machine is wrong", objs: append(agents, dead(clustertest.Gateway("active", ""))),
			clock: func() time.Time { return time.Date(2026, 3, 1, 12, 0, 14, 0, time.UTC) },
		},
		{
			name: "one of two gateways is dead", present: []string{"east"}, objs: append(agents, dead(another("passive", connection("east", "connected", ""))),
				clustertest.Gateway("active", "", connection("east", "error", "no reply to pings"))), several: true,
			want: "waiting for connections to east: out of time:\n  gateway n2: not updated since 2026-03-01T12:00:00Z\n  cluster \"east\": error: no reply to pings",
		},
		{
			name: "the other one is connected", present: []string{"east"}, objs: append(agents, dead(another("passive")),
				clustertest.Gateway("active", "", connection("east", "connected", ""))), several: true,
		},
		{
			name: "not connected", present: []string{"east", "north", "south"},
			objs: append(agents, clustertest.Gateway("active", "the broker does not answer", connection("east", "connected", ""), connection("north", "error", "no reply to pings"))),
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
					Spec:       submarinerv1.EndpointSpec{ClusterID: "west", Subnets: []string{cmp.Or(test.before, network)}},
				})
			}
			j := &join.Operation{
				Member: cluster.Side{Client: clustertest.Client(t, test.objs...), Clock: test.clock}, Broker: cluster.Side{Client: clustertest.Client(t, seen...)},
				Plan: &join.Plan{Present: test.present, Cables: test.changes, Gateways: test.made, Submariner: clustertest.Submariner(), Grant: trust.Grant{Networks: []netip.Prefix{netip.MustParsePrefix(network)}}}, Report: progress.New(&said),
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
	never := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 128, Reason: "StartError", Message: "no such file: subctl"}}
	again := waiting("CrashLoopBackOff", "back-off 10s")
	again.ContainerStatuses[0].LastTerminationState = never
	for _, test := range []struct {
		status corev1.PodStatus
		want   string
	}{
		{waiting("ImagePullBackOff", "not found"), "ImagePullBackOff: not found"},
		{again, "StartError: no such file: subctl"},
		{corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{State: never}}}, "StartError: no such file: subctl"},
	} {
		t.Run(test.want, func(t *testing.T) {
			t.Parallel()
			c := clustertest.Client(t, daemonSet(cluster.RouteAgentName, 1, 0), daemonSet(cluster.GatewayName, 1, 1), pod(cluster.RouteAgentName, "n1", test.status))
			p, err := normal().plan()
			require.NoError(t, err)
			op := &join.Operation{Member: cluster.Side{Client: c}, Plan: p, Report: progress.New(&bytes.Buffer{})}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			err = op.Wait(ctx)
			require.ErrorContains(t, err, "the agents cannot start:\n")
			require.ErrorContains(t, err, "pod submariner-routeagent-x on node n1: "+test.want+"\n")
			require.ErrorContains(t, err, "specify another image with subctl join --image")
		})
	}
}
