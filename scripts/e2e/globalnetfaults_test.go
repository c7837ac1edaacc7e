//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/internal/measure"
)

// service is the exported Service web of a cluster, as a pod to send to.
func service(t *testing.T, cluster string) pod {
	t.Helper()
	return pod{cluster: cluster, name: "web", ip: globalIP(t, cluster, "web")}
}

// globalAndPlain connects clusters of both kinds: the one without a global network reaches exported
// Services, and is reached by its own addresses.
func globalAndPlain(t *testing.T) {
	plain := pods(t, plainCluster, "web")
	for _, c := range overlapping() {
		ip := globalIP(t, c, "web")
		for _, from := range plain {
			require.Equal(t, from.ip, clientOf(t, from.exec(t, "get", "http://"+ip+"/", "--timeout", "15s")).String(),
				"the client's own address")
		}
		from := podOn(t, c, "web", gateway(t, c))
		for _, to := range []string{
			serviceIP(t, plainCluster, "web") + ":80",
			plain[0].ip + ":8080",
			plain[1].ip + ":8080",
		} {
			seen := clientOf(t, from.exec(t, "get", "http://"+to+"/", "--timeout", "15s"))
			require.True(t, globalNetwork(t, c).Contains(seen), "the server saw %v", seen)
		}
	}
}

// globalLater gives the plain cluster a global network, and takes it away again. No agent is
// started again.
func globalLater(t *testing.T) {
	pod := podOn(t, plainCluster, "web", worker(t, plainCluster))
	to := "http://" + globalIP(t, "cluster1", "web") + "/"
	agents := func() string {
		return kubectl(t, plainCluster, "-n", "submariner-operator", "get", "pods", "-l",
			"app in (submariner-gateway,submariner-routeagent)", "-o",
			"jsonpath={range .items[*]}{.metadata.uid} {.status.containerStatuses[0].restartCount}, {end}")
	}
	before := agents()
	require.NotEmpty(t, before)
	must(t, "subctl", "join", brokerFile, "--context", plainCluster, "--image", image, "--globalnet", "--force")
	network := globalNetwork(t, plainCluster)
	eventually(t, 20*time.Second, func() error {
		out, err := pod.try("get", to, "--timeout", "2s")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		if seen := clientOf(t, out); !network.Contains(seen) {
			return fmt.Errorf("the server saw %v", seen)
		}
		return nil
	})
	must(t, "subctl", "join", brokerFile, "--context", plainCluster, "--image", image, "--globalnet=false", "--force")
	eventually(t, 20*time.Second, func() error {
		out, err := pod.try("get", to, "--timeout", "2s")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		if seen := clientOf(t, out); seen.String() != pod.ip {
			return fmt.Errorf("the server saw %v", seen)
		}
		return nil
	})
	require.Equal(t, before, agents())
}

// globalGroup gives a group of pods addresses of their own as their source, and takes them away
// again.
func globalGroup(t *testing.T) {
	from := podOn(t, "cluster2", "web", gateway(t, "cluster2"))
	to := "http://" + globalIP(t, "cluster3", "web") + "/"
	source := func() string { return clientOf(t, from.exec(t, "get", to, "--timeout", "15s")).String() }
	shared := source()
	apply(t, "cluster2",
		"apiVersion: submariner.io/v1\nkind: GlobalEgressIP\nmetadata: {name: group, namespace: default}\nspec: {podSelector: {matchLabels: {app: web}}}\n")
	become := func(want func(string) bool) {
		t.Helper()
		eventually(t, 10*time.Second, func() error {
			if seen := source(); !want(seen) {
				return fmt.Errorf("the server saw %s", seen)
			}
			return nil
		})
	}
	var held string
	eventually(t, 10*time.Second, func() error {
		held = kubectl(t, "cluster2", "get", "globalegressips.submariner.io", "group", "-o",
			"jsonpath={.status.allocatedIPs[0]}")
		if held == "" {
			return fmt.Errorf("no address")
		}
		return nil
	})
	become(func(seen string) bool { return seen == held })
	who, code := stdout(t, "subctl", "show", "globalnet", "--who", held, "--contexts", "cluster1,cluster2", "-o",
		"json")
	require.Zero(t, code)
	require.Contains(t, who, "pods app=web of namespace default")
	kubectl(t, "cluster2", "delete", "globalegressips.submariner.io", "group")
	become(func(seen string) bool { return seen == shared })
}

// globalOtherCable has two clusters change their cable under a stream to an exported Service, and
// back.
func globalOtherCable(t *testing.T) {
	from := podOn(t, "cluster1", "web", worker(t, "cluster1"))
	to := service(t, "cluster2")
	used := func(driver string) {
		t.Helper()
		eventually(t, time.Minute, func() error {
			cs, code := connections(t)
			for _, c := range cs {
				if c.Cluster == "cluster1" && c.RemoteCluster == "cluster2" ||
					c.Cluster == "cluster2" && c.RemoteCluster == "cluster1" {
					if c.CableDriver != driver {
						code = 3
					}
				}
			}
			if code != 0 {
				return fmt.Errorf("exit code %d: %+v", code, cs)
			}
			return nil
		})
		time.Sleep(3 * time.Second) // the old cable goes
	}
	for _, driver := range []string{"wireguard", "ipsec", "vxlan+wireguard"} {
		lossless(t, 1, func() map[string]lost {
			s := startStream(t, from, to)
			must(t, "subctl", "cable-policy", "add", "--wait=false", "--context", "cluster1", "--name", "one-two",
				"--cable-driver", driver, "--left-cluster-selector", "submariner-io/clusterID=cluster1",
				"--right-cluster-selector", "submariner-io/clusterID=cluster2")
			used(driver)
			globalSizes(t)
			must(t, "subctl", "cable-policy", "delete", "--context", "cluster1", "--force", "--name", "one-two")
			used("vxlan")
			return map[string]lost{"service": s.stop(t)}
		})
	}
}

// globalWithoutBroker cuts clusters off from the broker: traffic continues, and Services can be
// exported.
func globalWithoutBroker(t *testing.T) {
	from := podOn(t, "cluster2", "web", worker(t, "cluster2"))
	cut := []string{"cluster2", "cluster3"}
	lossless(t, 1, func() map[string]lost {
		s := startStream(t, from, service(t, "cluster3"))
		for _, c := range cut {
			must(t, "lab", "cut", c, "cluster1-api")
		}
		apply(t, "cluster3",
			"apiVersion: v1\nkind: Service\nmetadata: {name: late, namespace: default}\nspec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}\n")
		began := time.Now()
		export(t, "cluster3", "late")
		ip := globalIP(t, "cluster3", "late")
		eventually(t, 10*time.Second, func() error {
			if out, err := from.try("get", "http://"+ip+"/", "--timeout", "1s"); err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
		t.Logf("exported without a broker: an answer after %.1f s", time.Since(began).Seconds())
		for _, c := range cut {
			must(t, "lab", "heal", c, "cluster1-api")
		}
		kubectl(t, "cluster3", "delete", "serviceexports.multicluster.x-k8s.io,services", "late")
		return map[string]lost{"service": s.stop(t)}
	})
}

// globalSeveral gives two clusters a second active gateway. Replies find the gateway that has
// translated, and traffic continues without one, which is cut off and, in the wide lab, loses its
// power.
func globalSeveral(t *testing.T) {
	both := []string{"cluster1", "cluster2"}
	for _, c := range both {
		several(t, c, true)
	}
	allConnected(t)
	own := podOn(t, "cluster1", "web", nodes("cluster1")[0])
	kubectl(t, "cluster1", "annotate", "pod", own.name, "submariner.io/global-ip=own", "--overwrite")
	ownIP := globalIP(t, "cluster1", "pod-"+own.name)
	to := globalIP(t, "cluster2", "web")
	shared := map[string]string{} // the gateway of each shared address
	for _, g := range gateways(t, "cluster1") {
		held := kubectl(t, "cluster1", "get", "clusterglobalegressips.submariner.io", g+"-cluster-egress.submariner.io",
			"-o", "jsonpath={.status.allocatedIPs}")
		var ips []string
		require.NoError(t, json.Unmarshal([]byte(held), &ips), held)
		for _, ip := range ips {
			shared[ip] = g
		}
	}
	eventually(t, 20*time.Second, func() error {
		seen := map[string]bool{}
		for _, from := range append(pods(t, "cluster1", "host"), pods(t, "cluster1", "db")...) {
			out, err := from.try("get", "http://"+to+"/", "-n", "20", "--timeout", "5s")
			if err != nil {
				return fmt.Errorf("from %s: %w: %s", from.name, err, out)
			}
			for line := range strings.Lines(out) {
				seen[shared[clientOf(t, line).String()]] = true
			}
		}
		if len(seen) != 2 || seen[""] {
			return fmt.Errorf("servers saw addresses of the gateways %v", seen)
		}
		if seen := clientOf(t, own.exec(t, "get", "http://"+to+"/", "--timeout", "5s")).String(); seen != ownIP {
			return fmt.Errorf("servers saw %s, not %s", seen, ownIP)
		}
		return nil
	})
	t.Log("a gateway of the servers fails")
	victim := nodes("cluster2")[1]
	client := "cluster1"
	if globalnetWide {
		client = "cluster3" // has one gateway
	}
	from := podOn(t, client, "web", nodes(client)[1])
	kept := podOn(t, "cluster2", "web", nodes("cluster2")[0])
	kubectl(t, "cluster2", "annotate", "pod", kept.name, "submariner.io/global-ip=own", "--overwrite")
	s := startStream(t, from, pod{cluster: "cluster2", name: kept.name, ip: globalIP(t, "cluster2", "pod-"+kept.name)})
	if globalnetWide {
		must(t, "lab", "kill", victim)
	}
	must(t, "lab", "cut", victim)
	time.Sleep(3 * time.Second)
	l := s.stop(t)
	measure.Record(
		t,
		measure.AtMost("globalnet, one of two active gateways gone: traffic to a pod again after",
			measure.Values{l.LongestGapMs / 1000}, 1*slack, "s"),
	)
	eventually(t, 10*time.Second, func() error {
		if out, err := from.try("get", "http://"+to+"/", "-n", "10", "--timeout", "2s"); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	must(t, "lab", "heal", victim)
	if globalnetWide {
		must(t, "lab", "start", victim)
	}
	kubectl(t, "cluster2", "wait", "--for=condition=Ready", "node/"+victim, "--timeout=300s")
	for _, app := range []string{"web", "host"} {
		kubectl(t, "cluster2", "rollout", "status", "daemonset/"+app, "--timeout=300s")
	}
	allConnected(t)
	require.Len(t, slices.Compact(gateways(t, "cluster2")), 2)
}
