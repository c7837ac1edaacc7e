package cmd

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/agent/mesh/report"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker/exchange"
	"subctl/dataplane"
)

func named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: submarinerv1.OperatorNamespace}
}

func submariner(id string) *v1alpha1.Submariner {
	return &v1alpha1.Submariner{
		ObjectMeta: named("submariner"),
		Spec: v1alpha1.SubmarinerSpec{
			ClusterID:   id,
			ServiceCIDR: "100.64.0.0/16",
			ClusterCIDR: "10.0.0.0/16,10.1.0.0/16",
			GlobalCIDR:  "242.0.0.0/16",
		},
		Status: v1alpha1.SubmarinerStatus{NetworkPlugin: "flannel"},
	}
}

func endpoint(cluster, host, ip string) submarinerv1.EndpointSpec {
	return submarinerv1.EndpointSpec{
		ClusterID: cluster,
		Hostname:  host,
		PrivateIP: ip,
		CableName: "submariner-cable-" + cluster + "-" + strings.ReplaceAll(ip, ".", "-"),
		Subnets:   []string{"100.65.0.0/16", "10.2.0.0/16", "10.3.0.0/16", "10.4.0.0/16"},
		Backend:   "vxlan",
	}
}

func connection(status submarinerv1.ConnectionStatus, remote submarinerv1.EndpointSpec) submarinerv1.Connection {
	return submarinerv1.Connection{Status: status, Endpoint: remote, UsingIP: remote.PrivateIP}
}

// gateway returns an active gateway that reported some seconds ago.
func gateway(cluster, node string, ago time.Duration, connections ...submarinerv1.Connection) *submarinerv1.Gateway {
	gw := &submarinerv1.Gateway{ObjectMeta: named(node)}
	gw.Annotations = map[string]string{submarinerv1.TimestampAnnotation: strconv.FormatInt(now.Add(-ago).Unix(), 10)}
	gw.Status = submarinerv1.GatewayStatus{
		Version:       "v0.1.0",
		HAStatus:      submarinerv1.HAStatusActive,
		LocalEndpoint: endpoint(cluster, node, "172.18.0.2"),
		Connections:   connections,
	}
	return gw
}

// passive makes a gateway stand by.
func passive(gw *submarinerv1.Gateway) *submarinerv1.Gateway {
	gw.Status.HAStatus = submarinerv1.HAStatusPassive
	return gw
}

// omitting makes a gateway leave connections out of its report, of which some are not connected.
func omitting(gw *submarinerv1.Gateway, down int) *submarinerv1.Gateway {
	gw.Status.ConnectionsOmitted = 1200
	gw.Status.ConnectionsOmittedDown = down
	return gw
}

// workloads returns what join installs on a node.
func workloads(image string) []client.Object {
	labels := map[string]string{"app": "submariner-gateway"}
	pod := &corev1.Pod{ObjectMeta: named("submariner-gateway-x7k2p"), Spec: corev1.PodSpec{NodeName: "gw-1"}}
	pod.Labels = labels
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Ready: true}}
	available := appsv1.DeploymentStatus{Replicas: 1, UpdatedReplicas: 1, AvailableReplicas: 1}
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Image: image}}},
	}
	globalnet := map[string]string{"app": "submariner-globalnet"}
	agents := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: globalnet},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Image: image}}},
	}
	replaced := &corev1.Pod{
		ObjectMeta: named("submariner-globalnet-b4m2k"),
		Spec:       *agents.Spec.DeepCopy(),
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	replaced.Labels = globalnet
	replaced.Spec.NodeName = "gw-1"
	replaced.Spec.Containers[0].Image = "quay.io/submariner/subctl:v0.0.9"
	return []client.Object{
		&appsv1.Deployment{
			ObjectMeta: named("submariner-globalnet"), Spec: appsv1.DeploymentSpec{Template: agents}, Status: available,
		},
		replaced,
		&appsv1.DaemonSet{ObjectMeta: named("submariner-gateway"), Spec: appsv1.DaemonSetSpec{Template: template}},
		&appsv1.Deployment{
			ObjectMeta: named("extra"),
			Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "extra"}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Image: "registry.test:5000/a/b"}}},
			}},
			Status: available,
		},
		pod,
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: "gw-1", Labels: map[string]string{corev1.LabelArchStable: "arm64", corev1.LabelOSStable: "linux"},
		}},
	}
}

// worlds are the situations in which the clusters are shown.
func worlds() map[string]world {
	toEast := connection(submarinerv1.Connected, endpoint("east", "gw-e", "172.18.0.9"))
	toEast.LatencyRTT = &submarinerv1.LatencyRTT{Average: "404.351µs"}
	toEast.Driver = "wireguard"
	toEast.Policy = "secure"
	toEast.Implementation = "wireguard-go"
	toEast.MTU = 1420
	toEast.DesiredDriver = "wireguard"
	toEast.PathMTU = 1500
	toEast.ReceivedBytes = new(int64(1 << 32))
	toEast.SentBytes = new(int64(0))
	toEast.IsolationDrops = new(int64(12))
	toEast.LastContact = &metav1.Time{Time: now.Add(-3 * time.Second)}
	toEast.LastHandshake = &metav1.Time{Time: now.Add(-95 * time.Second)}
	toEast.Attempts = []string{"172.18.0.9:4490 private: answered after 1 ms", "203.0.113.9:4490 public: no answer"}
	toNorth := connection(submarinerv1.Connecting, endpoint("north", "gw-n", "172.18.0.7"))
	toNorth.UsingIP = ""
	toNorth.UsingNAT = true
	toNorth.StatusMessage = "no handshake yet"
	toSouth := connection(submarinerv1.ConnectionError, endpoint("south", "gw-s", "172.18.0.5"))
	toSouth.UsingIP = ""
	toSouth.Driver = "ipsec"
	toSouth.Policy = "secure"
	toSouth.StatusMessage = "refused: cable policy secure wants ipsec: cluster south does not offer ipsec"
	toNorth.Endpoint.PublicIP = "203.0.113.7"
	toNorth.Endpoint.NATEnabled = true
	toWest := connection(submarinerv1.Connected, endpoint("west", "gw-1", "172.18.0.2"))

	refusing := gateway("west", "gw-1", time.Second, toEast)
	refusing.Status.Conditions = []metav1.Condition{
		{
			Type:   role.ConditionRefused,
			Status: metav1.ConditionTrue,
			Reason: "EndpointRefused",
			Message: "endpoint south: its subnets overlap ours\nCluster west in this cluster: the broker has no clusters " +
				exchange.NotReserved + " gone",
		},
	}
	faulty := gateway("west", "gw-1", time.Second, toEast)
	faulty.Status.Conditions = []metav1.Condition{
		{
			Type:    role.ConditionSynced,
			Status:  metav1.ConditionTrue,
			Reason:  "Seen",
			Message: "the node holds what was planned",
		},
		{
			Type:    role.ConditionPublicIP,
			Status:  metav1.ConditionFalse,
			Reason:  "Unusable",
			Message: "no address is called gw.example.com",
		},
		{
			Type:    role.ConditionBrokerSynced,
			Status:  metav1.ConditionFalse,
			Reason:  "Failed",
			Message: "broker: connection refused\nbroker: again",
		},
		{Type: report.ConditionCableConfigValid, Status: metav1.ConditionFalse, Reason: "BadCableConfig"},
	}
	waiting := gateway("west", "gw-1", time.Second, toEast)
	waiting.Status.Conditions = []metav1.Condition{
		{
			Type:    role.ConditionBrokerSynced,
			Status:  metav1.ConditionFalse,
			Reason:  "Waiting",
			Message: "no contact with the broker yet",
		},
	}
	failing := gateway("west", "gw-1", time.Second)
	failing.Status.StatusFailure = "port 4500 is taken"

	broker := &v1alpha1.Broker{
		ObjectMeta: metav1.ObjectMeta{Name: "submariner-broker", Namespace: submarinerv1.BrokerNamespace},
		Spec: v1alpha1.BrokerSpec{
			Components: []string{"connectivity", "service-discovery"}, GlobalnetEnabled: true,
			GlobalnetCIDRRange: "242.0.0.0/8", DefaultGlobalnetClusterSize: 65536,
		},
	}
	west := append(workloads("quay.io/submariner/subctl:v0.1.0"), submariner("west"),
		gateway("west", "gw-1", time.Second, toEast), passive(gateway("west", "gw-2", 3*time.Second)), broker)
	bare := member(submarinerv1.OperatorNamespace, "north", "172.18.0.7", "vxlan", nil)[0] // without an Endpoint
	bare.SetAnnotations(map[string]string{submarinerv1.ClusterSetsAnnotation: "default"})
	expelled := member(submarinerv1.OperatorNamespace, "west", "172.18.0.2", "vxlan", nil)[0]
	expelled.SetLabels(nil) // not a copy
	expelled.SetAnnotations(map[string]string{submarinerv1.ClusterSetsAnnotation: ""})
	return map[string]world{
		"several": {"west": severalGateways()},
		"standby": {"west": withStandbys()},
		"well":    {"west": west},
		"two":     {"west": west, "east": {submariner("east"), gateway("east", "gw-e", time.Second, toWest)}},
		"omitted": {
			"west": {
				submariner("west"),
				omitting(gateway("west", "gw-1", time.Second, toEast), 0),
				omitting(gateway("west", "gw-2", time.Second, toEast), 3),
			},
		},
		"many": {"west": {submariner("west"), omitting(gateway("west", "gw-1", time.Second, toEast), 0)}},
		"down": {"west": {submariner("west"), gateway("west", "gw-1", time.Second, toEast, toNorth, toSouth)}},
		"drained": {
			"west": {
				submariner("west"),
				gateway("west", "gw-1", 8*time.Second, toEast),
				gateway("west", "gw-2", time.Second, toNorth),
			},
		},
		"stale":    {"west": {submariner("west"), gateway("west", "gw-1", 16*time.Second, toEast)}},
		"ahead":    {"west": {submariner("west"), gateway("west", "gw-1", -time.Minute, toEast)}},
		"refusing": {"west": {submariner("west"), refusing}},
		"faulty":   {"west": {submariner("west"), faulty}},
		"waiting":  {"west": {submariner("west"), waiting}},
		"failing":  {"west": {submariner("west"), failing}},
		"alone":    {"west": {submariner("west")}},
		"empty":    {"west": nil},
		"hub":      {"west": {broker}},
		"known":    {"west": append(knownClusters(), submariner("west"), gateway("west", "gw-1", time.Second, toEast))},
		"bare":     {"west": {submariner("west"), bare, gateway("west", "gw-1", time.Second, toEast)}},
		"expelled": {"west": {submariner("west"), expelled, gateway("west", "gw-1", time.Second)}},
		"members":  {"west": append(brokerMembers(), broker)},
		"mixed":    {"west": west, "east": nil},
		"gone":     {"west": west, "east": nil, "lost": nil},
	}
}

// severalGateways returns a cluster with active gateways of different weights and states, and a
// passive one.
func severalGateways() []client.Object {
	east := connection(submarinerv1.Connected, endpoint("east", "gw-e", "172.18.0.9"))
	east2 := connection(submarinerv1.Connected, endpoint("east", "gw-e2", "172.18.0.10"))
	east2.Member = new(false)
	east2.MemberReason = "down since 2026-03-01T11:58:00Z"
	east2.Status = submarinerv1.ConnectionError
	east2.StatusMessage = `gateway gw-e2 of cluster east answers pings, but forwards no packets`
	east2.DetectedBy = "echo"
	east2.DetectedAt = &metav1.Time{Time: now.Add(-2 * time.Minute)}
	east.Member = new(true)
	east.LastFailure = &submarinerv1.CableFailure{
		DetectedBy:  "large echo",
		DetectedAt:  metav1.NewTime(now.Add(-2 * time.Hour)),
		RecoveredAt: metav1.NewTime(now.Add(-61 * time.Second)),
	}
	east.Driver = "vxlan+wireguard"
	east.DesiredDriver = "vxlan+wireguard"
	east.Policy = "secure"
	east.DriverReason = "wireguard connects to one gateway of a cluster, and clusters east and west have several: vxlan+wireguard is in its place"
	sub := submariner("west")
	sub.Spec.MultiActiveGatewayEnabled = true
	objs := []client.Object{sub}
	for i, g := range []struct {
		drain  string
		weight int
		flows  int64
	}{{"", 100, 60}, {"", 50, 29}, {"draining", 100, 11}, {"drained", 0, 0}} {
		gw := gateway("west", "gw-"+strconv.Itoa(i+1), time.Second, east, east2)
		gw.Status.Weight = &g.weight
		gw.Status.Drain = g.drain
		gw.Status.Flows = &g.flows
		if i == 2 {
			// more than agents report
			gw.Status.SomeFlows = slices.Repeat([]string{"tcp 10.1.0.5:40000 → 10.2.0.9:80"}, dataplane.MaxFlows+1)
		}
		if g.drain != "" {
			gw.Status.DrainingSince = &metav1.Time{Time: now.Add(-time.Minute)}
		}
		facts := &submarinerv1.NodeFacts{ResilientGroups: i == 0, NoNextHopObjects: i == 2}
		if i < 2 {
			facts.MultipathHashPolicy = new(i)
		}
		objs = append(objs, gw,
			&submarinerv1.RouteAgent{ObjectMeta: named(gw.Name), Status: submarinerv1.RouteAgentStatus{Node: facts}})
	}
	return append(objs, passive(gateway("west", "gw-5", time.Second)))
}

// withStandbys returns a cluster with an active gateway and a standby, connected to another one
// like it.
func withStandbys() []client.Object {
	east := connection(submarinerv1.Connected, endpoint("east", "gw-e", "172.18.0.9"))
	east2 := connection(submarinerv1.Connected, endpoint("east", "gw-e2", "172.18.0.10"))
	standby := map[string]string{submarinerv1.BackendDrain: submarinerv1.Standby}
	east.Member = new(true)
	east2.Member = new(false)
	east2.Endpoint.BackendConfig = standby
	east2.MemberReason = submarinerv1.Standby
	gw1 := gateway("west", "gw-1", time.Second, east, east2)
	east.MemberReason = "this gateway is a standby"
	gw2 := passive(gateway("west", "gw-2", time.Second, east, east2))
	gw2.Status.LocalEndpoint.BackendConfig = standby
	return []client.Object{submariner("west"), gw1, gw2}
}

// TestShow prints each situation; "lost" is a context whose cluster cannot be reached.
func TestShow(t *testing.T) {
	for _, line := range []string{
		"well show connections",
		"well show connections -o wide",
		"well show connections -o json",
		"well show connections -o yaml",
		"standby show gateways",
		"standby show connections",
		"standby show endpoints",
		"standby show endpoints -o json",
		"several show gateways",
		"several show gateways -o wide",
		"several show gateways -o json",
		"several show connections",
		"several show connections -o wide",
		"several show connections -o json",
		"well show gateways",
		"well show gateways -o json",
		"well show endpoints",
		"well show endpoints -o wide",
		"well show endpoints -o json",
		"well show networks",
		"well show networks -o json",
		"well show versions",
		"well show versions -o json",
		"well show clusters",
		"known show clusters",
		"known show clustersets",
		"known show clustersets -o json",
		"expelled show clustersets",
		"expelled show endpoints",
		"known show connections",
		"bare show connections",
		"known show endpoints",
		"members show clustersets",
		"members show clustersets -o json",
		"hub show clustersets",
		"empty show clustersets",
		"faulty show clustersets",
		"refusing show clustersets",
		"known show clusters -o wide",
		"known show clusters -o json",
		"alone show clusters",
		"hub show clusters",
		"members show clusters",
		"members show clusters -o json",
		"empty show clusters",
		"empty show clusters -o json",
		"well show brokers",
		"well show brokers -o json",
		"well show all",
		"well show all -o json",
		"drained show connections",
		"two show connections",
		"two show connections -o json",
		"two show connections --contexts east,west",
		"two show connections --context east",
		"down show connections",
		"down show connections -o wide",
		"down show connections -o json",
		"down show gateways",
		"down show endpoints",
		"omitted show connections",
		"omitted show gateways",
		"many show connections",
		"many show connections -o json",
		"many show gateways",
		"many show gateways -o json",
		"stale show connections",
		"stale show connections -o json",
		"stale show gateways",
		"stale show gateways -o json",
		"ahead show connections",
		"ahead show gateways",
		"stale show all",
		"refusing show connections",
		"refusing show gateways",
		"failing show gateways",
		"faulty show gateways",
		"faulty show connections",
		"waiting show gateways",
		"failing show connections",
		"alone show connections",
		"alone show gateways",
		"alone show endpoints",
		"alone show versions",
		"alone show brokers",
		"alone show all",
		"empty show connections",
		"empty show connections -o json",
		"empty show brokers",
		"empty show brokers -o json",
		"empty show all",
		"hub show all",
		"hub show connections",
		"mixed show connections",
		"mixed show all",
		"gone show connections",
		"gone show connections -o json",
	} {
		t.Run(line, func(t *testing.T) {
			words := strings.Fields(line)
			w := worlds()[words[0]]
			contexts := []string{"west"}
			for _, other := range []string{"east", "lost"} {
				if _, ok := w[other]; ok {
					contexts = append(contexts, other)
				}
			}
			if words[0] == "gone" {
				delete(w, "lost")
			}
			golden(t, "show/"+strings.Join(append([]string{words[0]}, words[2:]...), "_"),
				runIn(t, w, contexts, words[1:]...))
		})
	}
}
