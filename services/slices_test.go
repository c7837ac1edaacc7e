package services

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"subctl/api/submariner/v1alpha1"
)

// withPods replaces the pods of a record.
func withPods(list ...v1alpha1.ExportedEndpoint) func(*v1alpha1.ExportedService) {
	return func(r *v1alpha1.ExportedService) { r.Endpoints[0].Pods = list }
}

func TestStatesOfEndpoints(t *testing.T) {
	w := newWorld(t)
	w.export("west", webOf("west", withPods(v1alpha1.ExportedEndpoint{IP: "10.1.0.4", State: v1alpha1.EndpointServing},
		v1alpha1.ExportedEndpoint{IP: "10.1.0.3", State: v1alpha1.EndpointTerminating},
		v1alpha1.ExportedEndpoint{IP: "10.1.0.2", State: v1alpha1.EndpointNotReady},
		v1alpha1.ExportedEndpoint{IP: "10.1.0.1", Zone: "a"})))
	w.settle()
	require.Equal(t, []string{
		"10.1.0.1 ready serving http=8080", "10.1.0.2 http=8080", "10.1.0.3 terminating http=8080",
		"10.1.0.4 serving terminating http=8080",
	}, w.endpoints("west"))
	for _, s := range w.apiServer.slices {
		require.Equal(t, "a", *s.Endpoints[0].Zone)
	}
}

func TestAddressInsteadOfPods(t *testing.T) {
	w := newWorld(t)
	w.export("west", webOf("west", addressOnly, func(r *v1alpha1.ExportedService) { r.Ports[0].Port = 80 }))
	w.settle()
	require.Equal(t, []string{serviceIP("west") + " ready serving http=80"}, w.endpoints("west"))

	w.export("west", webOf("west", addressOnly, notReady))
	w.settle()
	require.Equal(t, []string{serviceIP("west") + " http=80"}, w.endpoints("west"))

	w.view.Own = []v1alpha1.ExportedService{webOf("east", addressOnly)}
	w.settle()
	require.Empty(t, w.endpoints("east"), "kube-proxy does not translate an own cluster IP twice")
	require.Equal(t, []string{"west", "east"}, w.clusters())
}

func TestGlobalNetwork(t *testing.T) {
	global := func(r *v1alpha1.ExportedService) { r.Address = "242.1.0.7" }
	w := newWorld(t)
	w.export("west", webOf("west", addressOnly, global))
	w.member("west").GlobalNetworks = prefixes("242.1.0.0/16")
	w.settle()
	require.Equal(t, []string{"242.1.0.7 ready serving http=80"}, w.endpoints("west"))

	w.export("west", webOf("west", global))
	w.member("west").GlobalNetworks = prefixes("242.1.0.0/16")
	w.settle()
	require.Equal(t,
		[]string{"west shop/web: address 10.1.0.1 is in no pod network, or global network, that the cluster announces"},
		w.refusals())
	require.Empty(t, w.imports)
}

func TestGroupsOfPorts(t *testing.T) {
	w := newWorld(t)
	w.export("west", webOf("west", func(r *v1alpha1.ExportedService) {
		r.Endpoints = append(r.Endpoints,
			v1alpha1.ExportedEndpoints{Targets: []int32{9090}, Pods: []v1alpha1.ExportedEndpoint{{IP: "10.1.0.2"}}})
	}))
	w.settle()
	require.Len(t, w.apiServer.slices, 2)
	require.Equal(t, []string{"10.1.0.1 ready serving http=8080", "10.1.0.2 ready serving http=9090"},
		w.endpoints("west"))

	w.export("west", webOf("west"))
	w.settle()
	require.Len(t, w.apiServer.slices, 1)
}

func TestManyEndpoints(t *testing.T) {
	w := newWorld(t)
	record := webOf("west", asHeadless)
	for n := 2; n <= 250; n++ {
		record.Endpoints[0].Pods = append(record.Endpoints[0].Pods, v1alpha1.ExportedEndpoint{IP: podIP("west", n)})
	}
	w.export("west", record)
	w.settle()
	require.Len(t, w.apiServer.slices, 3)
	require.Len(t, w.endpoints("west"), 250)
}

func TestOwnEndpointsFirst(t *testing.T) {
	east := func(change ...func(*v1alpha1.ExportedService)) []v1alpha1.ExportedService {
		return []v1alpha1.ExportedService{webOf("east", change...)}
	}
	ready := []string{podIP("west", 1) + " ready serving http=8080"}
	withheld := []string{podIP("west", 1) + " http=8080"}
	spread := func(r *v1alpha1.ExportedService) { r.Spread = true }

	for name, c := range map[string]struct {
		own         []v1alpha1.ExportedService
		zones       []string
		noHints     bool
		east, west  []string // hints
		atWest      []string
		annotations string
	}{
		"no zones": {
			own:    east(),
			zones:  []string{""},
			east:   []string{""},
			west:   []string{otherZone},
			atWest: ready,
		},
		"zones": {
			own:    east(),
			zones:  []string{"a", "b"},
			east:   []string{"a", "b"},
			west:   []string{otherZone},
			atWest: ready,
		},
		"own one not ready": {
			own:    east(notReady),
			zones:  []string{"a"},
			east:   []string{"a"},
			west:   []string{otherZone},
			atWest: ready,
		},
		"not exported here": {zones: []string{"a"}, atWest: ready},
		"spread":            {own: east(spread), zones: []string{"a"}, atWest: ready},
		"nine zones": {
			own:         east(),
			zones:       []string{"1", "2", "3", "4", "5", "6", "7", "8", "9"},
			atWest:      withheld,
			annotations: "local-first",
		},
		"no hints": {
			own:         east(),
			zones:       []string{"a"},
			noHints:     true,
			atWest:      withheld,
			annotations: "local-first",
		},
		"no hints, not ready": {own: east(notReady), zones: []string{"a"}, noHints: true, atWest: ready},
		"no hints, spread":    {own: east(spread), zones: []string{"a"}, noHints: true, atWest: ready},
		"no hints, not here":  {zones: []string{"a"}, noHints: true, atWest: ready},
		"no hints, more ports": {
			own:         east(ports("http 80/TCP 8080", "other 99/TCP 99"), exportedAt(3000)),
			zones:       []string{"a"},
			noHints:     true,
			atWest:      withheld,
			annotations: "local-first",
		},
		"no hints, other port": {
			own:     east(ports("other 99/TCP 99"), exportedAt(3000)),
			zones:   []string{"a"},
			noHints: true,
			atWest:  ready,
		},
		"no hints, conflict port": {
			own:     east(ports("http 99/TCP 99"), exportedAt(3000)),
			zones:   []string{"a"},
			noHints: true,
			atWest:  ready,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.view.Own = c.own
			w.view.Zones = c.zones
			w.view.Hints = !c.noHints
			w.export("west", webOf("west", exportedAt(2000)))
			w.settle()
			require.Equal(t, c.east, w.hints("east"))
			require.Equal(t, c.west, w.hints("west"))
			require.Equal(t, c.atWest, w.endpoints("west"))
			for _, s := range w.apiServer.slices {
				if s.Labels["multicluster.kubernetes.io/source-cluster"] == "west" {
					require.Equal(t, c.annotations, s.Annotations[WithheldAnnotation])
				}
			}
		})
	}
}

func TestUnreachableClusters(t *testing.T) {
	up := func(cluster string) []string { return []string{podIP(cluster, 1) + " ready serving http=8080"} }
	down := func(cluster string) []string { return []string{podIP(cluster, 1) + " http=8080"} }
	w := newWorld(t)
	w.view.Own = []v1alpha1.ExportedService{webOf("east")}
	w.export("west", webOf("west"))
	w.export("north", webOf("north"))
	w.settle()
	uid := w.imported().UID

	w.member("west").Unreachable = true
	w.settle()
	require.Equal(t, down("west"), w.endpoints("west"))
	require.Equal(t, up("north"), w.endpoints("north"))
	require.Len(t, w.clusters(), 3, "the cluster stays in the import")

	// All others look unreachable. While an own pod is ready, nothing is lost by believing it.
	w.member("north").Unreachable = true
	w.settle()
	require.Equal(t, down("north"), w.endpoints("north"))

	// Otherwise the fault is more likely here, and nothing changes.
	w.member("north").Unreachable = false
	w.settle()
	w.view.Own = []v1alpha1.ExportedService{webOf("east", notReady)}
	w.member("north").Unreachable = true
	w.settle()
	require.Equal(t, down("west"), w.endpoints("west"))
	require.Equal(t, up("north"), w.endpoints("north"))

	// What changes otherwise, changes.
	w.export("north", webOf("north", notReady))
	w.member("north").Unreachable = true
	w.settle()
	require.Equal(t, down("north"), w.endpoints("north"))

	w.export("north", webOf("north"))
	w.member("west").Unreachable = false
	w.settle()
	require.Equal(t, up("west"), w.endpoints("west"))
	require.Equal(t, up("north"), w.endpoints("north"))
	require.Equal(t, uid, w.imported().UID)
}

func TestTheOnlyOtherClusterIsUnreachable(t *testing.T) {
	w := newWorld(t)
	w.export("west", webOf("west"))
	w.publish(
		"north",
		page("north", 0, 1, webOf("north", named("db", "db"), asHeadless, func(r *v1alpha1.ExportedService) {
			r.Endpoints = nil // It has no endpoints, so that it does not count.
		})),
	)
	w.member("west").Unreachable = true
	w.settle()
	require.Equal(t, []string{podIP("west", 1) + " ready serving http=8080"}, w.endpoints("west"))
}

// TestProxyChoosesOwnEndpoints follows the rule of kube-proxy for hints.
func TestProxyChoosesOwnEndpoints(t *testing.T) {
	for _, zone := range []string{"", "a", "b"} {
		for _, ready := range []bool{true, false} {
			t.Run(fmt.Sprintf("zone %q, ready %v", zone, ready), func(t *testing.T) {
				w := newWorld(t)
				w.view.Zones = []string{"", "a", "b"}
				record := webOf("east")
				want := podIP("east", 1)
				if !ready {
					record = webOf("east", notReady)
					want = podIP("west", 1)
				}
				w.view.Own = []v1alpha1.ExportedService{record}
				w.export("west", webOf("west"))
				w.settle()
				require.Equal(t, []string{want}, chosen(w.apiServer, zone))
			})
		}
	}
}

// chosen returns the endpoints that kube-proxy uses on a node of a zone.
func chosen(a *apiServer, zone string) []string {
	var all, hinted []string
	everyHint := true
	for _, s := range a.slices {
		if _, ignored := s.Labels[corev1.IsHeadlessService]; ignored {
			continue
		}
		for _, e := range s.Endpoints {
			if !*e.Conditions.Ready {
				continue
			}
			all = append(all, e.Addresses[0])
			everyHint = everyHint && len(zones(e)) > 0
			for _, z := range zones(e) {
				if z == (discoveryv1.ForZone{Name: zone}) {
					hinted = append(hinted, e.Addresses[0])
				}
			}
		}
	}
	if everyHint && len(hinted) > 0 {
		return hinted
	}
	return all
}
