//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// How long failures are watched: as long as pods that were deleted take to end, and longer than
// requests to a dead one take to fail.
const (
	podsEnd     = 7 * time.Second
	unreachable = 5 * time.Second
	replaced    = 10 * time.Second // pods of Deployments
)

// serviceFaults are all faults of TestServiceFailures.
var serviceFaults = []serviceFault{
	{name: "exported", alone: exported},
	{name: "pod-deleted", watched: podsEnd, happen: podDeleted},
	{name: "pods-replaced", watched: 12 * time.Second, happen: podsReplaced},
	{name: "scaled-to-zero", watched: podsEnd, happen: scaledTo("cluster2", 0), undo: scaledBack("cluster2")},
	{name: "own-pods-scaled-to-zero", watched: podsEnd, happen: scaledTo("cluster1", 0), undo: scaledBack("cluster1")},
	{name: "cluster-cut", watched: unreachable, before: freshAgent, happen: cut("cluster2"), undo: heal("cluster2")},
	{
		name: "pair-cut", watched: unreachable, before: freshAgent,
		happen: cut("cluster1", "cluster2"), undo: heal("cluster1", "cluster2"),
	},
	{
		name: "gateway-killed", watched: unreachable, restarts: true,
		before: func(t *testing.T, s *serviceScene) {
			freshAgent(t, s)
			podsOffGateway(t, s)
		},
		happen: gatewayKilled, undo: gatewayBack, after: podsAnywhere,
	},
	{
		name: "agents-deleted", watched: replaced, restarts: true,
		happen: deleted("submariner-operator", "app", "submariner-service-discovery", clusters...),
	},
	{
		name:    "dns-deleted",
		watched: replaced,
		happen:  deleted("submariner-operator", "app", "submariner-dns", "cluster1"),
	},
	{name: "coredns-restarted", watched: 12 * time.Second, happen: coreDNSRestarted},
	{name: "coredns-deleted", watched: replaced, happen: deleted("kube-system", "k8s-app", "kube-dns", "cluster1")},
	{
		name: "cluster-killed", watched: unreachable, restarts: true,
		before: freshAgent, happen: clusterKilled, undo: clusterBack,
	},
	{
		name: "importer-api-stopped", watched: unreachable, restarts: true,
		happen: apiServerStops("cluster1"), undo: apiServerBack("cluster1"),
	},
	{
		name: "exporter-api-stopped", watched: unreachable, restarts: true,
		happen: apiServerStops("cluster2"), undo: apiServerBack("cluster2"),
	},
	{
		name: "broker-stopped-a-minute-pods-replaced", watched: time.Minute, restarts: true,
		happen: podsReplacedMeanwhile(apiServerStops("cluster3")), undo: apiServerBack("cluster3"),
	},
	{
		name: brokerCut, watched: 10 * time.Minute, restarts: true,
		happen: podsReplacedMeanwhile(brokerIsCut), undo: heal("cluster3-api"),
	},
	{
		name: "left-clusterset", watched: podsEnd, restarts: true,
		happen: commanded("subctl", "clusterset", "remove", "default", "cluster2", "--force", "--wait=false"),
		undo: func(t *testing.T, _ *serviceScene) {
			must(t, ofBroker("subctl", "clusterset", "add", "default", "cluster2", "--wait=false")...)
		},
	},
	{
		name: "uninstalled", watched: podsEnd, restarts: true,
		happen: func(t *testing.T, s *serviceScene) func(string) bool {
			s.began()
			must(t, "subctl", "uninstall", "--context", "cluster2", "--yes")
			return in("cluster2")
		},
		undo: func(t *testing.T, s *serviceScene) { s.join(t, "cluster2") },
	},
	{
		name: "revoked", watched: podsEnd, restarts: true,
		happen: commanded("subctl", "revoke", "cluster2", "--yes", "--force"), undo: joinsAgain,
	},
}

// brokerCut takes 10 minutes a run, and runs only if tests may take long.
const brokerCut = "broker-cut-10-minutes-pods-replaced"

// podsReplacedMeanwhile replaces all pods of cluster2 once something else has happened.
func podsReplacedMeanwhile(
	happen func(*testing.T, *serviceScene) func(string) bool,
) func(*testing.T, *serviceScene) func(string) bool {
	return func(t *testing.T, s *serviceScene) func(string) bool {
		gone := happen(t, s)
		inShop(t, "cluster2", "rollout", "restart", "deployment/web")
		return gone
	}
}

// brokerIsCut cuts the other clusters from the broker: their packets to it are dropped.
func brokerIsCut(t *testing.T, s *serviceScene) func(string) bool {
	s.began()
	for _, c := range []string{"cluster1", "cluster2"} {
		must(t, "lab", "cut", c, "cluster3-api")
	}
	return nil
}

// in returns whether an answer is of a pod of a cluster.
func in(cluster string) func(who string) bool {
	return func(who string) bool { return strings.Contains(who, " node="+cluster+"-") }
}

func podDeleted(t *testing.T, s *serviceScene) func(string) bool {
	name := inShop(t, "cluster2", "get", "pods", "-l", "app=web", "--field-selector", "status.phase=Running",
		"-o", "jsonpath={.items[0].metadata.name}")
	p := &corev1.Pod{}
	p.Namespace = "shop"
	p.Name = name
	s.began()
	s.delete(t, "cluster2", p)
	return func(who string) bool { return strings.HasPrefix(who, "pod="+name+" ") }
}

// freshAgent replaces the agent of cluster1: it knows nothing of losses before, after which it
// would wait longer until it uses a cluster again that returns.
func freshAgent(t *testing.T, s *serviceScene) {
	const agent = "deployment/submariner-service-discovery"
	kubectl(t, "cluster1", "-n", "submariner-operator", "rollout", "restart", agent)
	kubectl(t, "cluster1", "-n", "submariner-operator", "rollout", "status", agent, "--timeout=300s")
	s.behind = true // until it has taken over
}

// coreDNSRestarted replaces the DNS servers of cluster1 one by one, as an upgrade does.
func coreDNSRestarted(t *testing.T, s *serviceScene) func(string) bool {
	s.began()
	kubectl(t, "cluster1", "-n", "kube-system", "rollout", "restart", "deployment/coredns")
	return nil
}

// joinsAgain takes what is left of a membership that was revoked away, and joins.
func joinsAgain(t *testing.T, s *serviceScene) {
	eventually(t, 30*time.Second, func() error { // it cannot tell the broker
		if out, err := sh("subctl", "uninstall", "--context", "cluster2", "--yes"); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	s.join(t, "cluster2")
}

// podsReplaced is a rolling update in cluster2.
func podsReplaced(t *testing.T, s *serviceScene) func(string) bool {
	s.began()
	inShop(t, "cluster2", "rollout", "restart", "deployment/web")
	return nil
}

func scaledTo(cluster string, replicas int) func(*testing.T, *serviceScene) func(string) bool {
	return func(t *testing.T, s *serviceScene) func(string) bool {
		s.began()
		s.patch(t, cluster, &appsv1.Deployment{}, "web", fmt.Sprintf(`{"spec": {"replicas": %d}}`, replicas))
		return in(cluster)
	}
}

func scaledBack(cluster string) func(*testing.T, *serviceScene) {
	return func(t *testing.T, _ *serviceScene) { scale(t, cluster, "deployment/web", 2) }
}

func cut(ends ...string) func(*testing.T, *serviceScene) func(string) bool {
	return func(t *testing.T, s *serviceScene) func(string) bool {
		s.began()
		must(t, append([]string{"lab", "cut"}, ends...)...)
		return nil
	}
}

func heal(ends ...string) func(*testing.T, *serviceScene) {
	return func(t *testing.T, _ *serviceScene) { must(t, append([]string{"lab", "heal"}, ends...)...) }
}

// podsOffGateway moves the pods of cluster2 to the node that is not the active gateway: those of a
// node that is killed are used until Kubernetes takes it for dead.
func podsOffGateway(t *testing.T, s *serviceScene) {
	node := worker(t, "cluster2")
	s.patch(t, "cluster2", &appsv1.Deployment{}, "web",
		fmt.Sprintf(`{"spec": {"template": {"spec": {"nodeSelector": {"kubernetes.io/hostname": %q}}}}}`, node))
	inShop(t, "cluster2", "rollout", "status", "deployment/web", "--timeout=300s")
	eventually(t, time.Minute, func() error {
		out := inShop(t, "cluster2", "get", "pods", "-l", "app=web", "-o", "jsonpath={.items[*].spec.nodeName}")
		if strings.TrimSpace(strings.ReplaceAll(out, node, "")) != "" {
			return fmt.Errorf("pods on %s", out)
		}
		return nil
	})
}

// podsAnywhere undoes podsOffGateway.
func podsAnywhere(t *testing.T, s *serviceScene) {
	s.patch(t, "cluster2", &appsv1.Deployment{}, "web", `{"spec": {"template": {"spec": {"nodeSelector": null}}}}`)
	inShop(t, "cluster2", "rollout", "status", "deployment/web", "--timeout=300s")
}

func gatewayKilled(t *testing.T, s *serviceScene) func(string) bool {
	s.victim = gateway(t, "cluster2")
	s.began()
	killNode(t, nil, s.victim)
	return nil
}

func gatewayBack(t *testing.T, s *serviceScene) {
	revive(t, s.victim)
	standby(t, "cluster2", s.victim)
}

func revive(t *testing.T, nodes ...string) {
	for _, node := range nodes {
		removeNode(t, node)
		must(t, "lab", "heal", node)
	}
	for _, node := range nodes {
		must(t, "lab", "start", node)
	}
}

// clusterKilled is a power cut: nothing of the cluster answers from one moment on.
func clusterKilled(t *testing.T, s *serviceScene) func(string) bool {
	s.began()
	must(t, "lab", "cut", "cluster2")
	for _, node := range nodes("cluster2") {
		must(t, "lab", "kill", "--keep-network", node)
	}
	must(t, "lab", "kill", "cluster2-api")
	return nil
}

func clusterBack(t *testing.T, _ *serviceScene) {
	for _, node := range nodes("cluster2") {
		removeNode(t, node)
	}
	must(t, "lab", "heal", "cluster2")
	must(t, "lab", "start", "cluster2-api")
	revive(t, nodes("cluster2")...)
	inShop(t, "cluster2", "rollout", "status", "deployment/web", "--timeout=300s")
	allConnected(t)
}

// deleted deletes all pods with a label at once.
func deleted(namespace, label, value string, of ...string) func(*testing.T, *serviceScene) func(string) bool {
	return func(t *testing.T, s *serviceScene) func(string) bool {
		s.began()
		for _, c := range of {
			require.NoError(t, s.api[c].DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(namespace),
				client.MatchingLabels{label: value}))
		}
		return nil
	}
}

func apiServerStops(cluster string) func(*testing.T, *serviceScene) func(string) bool {
	return func(t *testing.T, s *serviceScene) func(string) bool {
		s.began()
		must(t, "lab", "kill", cluster+"-api")
		return nil
	}
}

func apiServerBack(cluster string) func(*testing.T, *serviceScene) {
	return func(t *testing.T, _ *serviceScene) { must(t, "lab", "start", cluster+"-api") }
}

// ofBroker returns a command of the broker's administrator.
func ofBroker(args ...string) []string {
	return append(args, "--context", "cluster3", "--broker-info", brokerFile)
}

// commanded runs a command that takes cluster2 away.
func commanded(args ...string) func(*testing.T, *serviceScene) func(string) bool {
	return func(t *testing.T, s *serviceScene) func(string) bool {
		s.began()
		must(t, ofBroker(args...)...)
		return in("cluster2")
	}
}
