package services

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"subctl/api/submariner/v1alpha1"
)

// walk changes a world at random.
type walk struct {
	*world
	*rand.Rand
	exports map[string]map[types.NamespacedName]v1alpha1.ExportedService
	hidden  map[string]bool // clusters of which a page is missing
}

func (w *walk) oneOf(list ...string) string { return list[w.IntN(len(list))] }

func (w *walk) record(cluster string, key types.NamespacedName) v1alpha1.ExportedService {
	r := webOf(cluster, named(key.Namespace, key.Name), exportedAt(w.Int64N(5)))
	lists := [][]string{
		{"http 80/TCP 8080"},
		{"http 81/TCP 8080"},
		{"web 80/TCP 8080"},
		{"- 80/TCP 8080"},
		{"http 80/TCP 8080", "dns 53/UDP 53"},
	}
	ports(lists[w.IntN(len(lists))]...)(&r)
	r.Endpoints[0].Pods = nil
	for n := range w.IntN(4) {
		states := []v1alpha1.EndpointState{
			"", "", v1alpha1.EndpointNotReady, v1alpha1.EndpointServing, v1alpha1.EndpointTerminating,
		}
		r.Endpoints[0].Pods = append(r.Endpoints[0].Pods,
			v1alpha1.ExportedEndpoint{IP: podIP(cluster, n+1), State: states[w.IntN(len(states))]})
	}
	if len(r.Endpoints[0].Pods) == 0 {
		r.Endpoints = nil
	}
	if w.IntN(3) == 0 {
		asHeadless(&r)
	}
	r.Spread = w.IntN(4) == 0
	r.Direct = w.IntN(4) == 0
	r.AffinitySeconds = int32(w.IntN(2) * 10)
	if w.IntN(2) == 0 {
		r.Labels = map[string]string{w.oneOf("a", "b"): "x"}
	}
	return r
}

// step makes one change.
func (w *walk) step() {
	cluster := w.oneOf("east", "west", "north", "south")
	key := types.NamespacedName{Namespace: w.oneOf("shop", "db"), Name: w.oneOf("web", "api")}
	switch w.IntN(12) {
	case 0, 1, 2, 3:
		w.exports[cluster][key] = w.record(cluster, key)
	case 4, 5:
		delete(w.exports[cluster], key)
	case 6:
		w.hidden[cluster] = !w.hidden[cluster]
	case 7:
		if cluster != "east" {
			if w.IntN(2) == 0 {
				clear(w.exports[cluster])
			}
			w.leave(cluster)
			return
		}
	case 8:
		if !w.view.Namespaces[key.Namespace] {
			w.view.Namespaces[key.Namespace] = true
		} else {
			delete(w.view.Namespaces, key.Namespace)
			w.deleteNamespace(key.Namespace)
		}
	case 9:
		w.view.Hints = !w.view.Hints
		w.view.Direct = w.IntN(2) == 0
	case 10:
		for n := range w.view.Members {
			w.view.Members[n].Unreachable = w.IntN(2) == 0
		}
		return
	case 11:
		w.disturb()
	}
	w.republish(cluster)
}

// disturb changes or deletes objects, as users do.
func (w *walk) disturb() {
	for _, key := range slices.SortedFunc(maps.Keys(w.imports), compareNames) {
		if w.IntN(4) == 0 {
			delete(w.imports, key)
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(w.services), compareNames) {
		s := w.services[key]
		switch w.IntN(6) {
		case 0:
			delete(w.services, key)
		case 1:
			s.Spec.Selector = map[string]string{"a": "b"}
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(w.apiServer.slices), compareNames) {
		s := w.apiServer.slices[key]
		switch w.IntN(6) {
		case 0:
			delete(w.apiServer.slices, key)
		case 1:
			s.Endpoints = nil
		}
	}
	if w.IntN(2) == 0 {
		w.collect()
	}
}

func (w *walk) republish(cluster string) {
	var records []v1alpha1.ExportedService
	for _, key := range slices.SortedFunc(maps.Keys(w.exports[cluster]), compareNames) {
		records = append(records, w.exports[cluster][key])
	}
	if cluster == "east" {
		w.view.Own = records
		return
	}
	unreachable := slices.ContainsFunc(w.view.Members, func(m Member) bool { return m.ID == cluster && m.Unreachable })
	split := len(records) / 2
	pages := []*v1alpha1.ExportedServices{
		page(cluster, 0, 2, records[:split]...),
		page(cluster, 1, 2, records[split:]...),
	}
	if w.hidden[cluster] {
		pages = pages[w.IntN(2):][:1]
	}
	w.publish(cluster, pages...)
	w.member(cluster).Unreachable = unreachable
}

// TestAnyChangesConverge makes random changes, applies results, and checks what holds always.
func TestAnyChangesConverge(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := &walk{
				world: newWorld(t), Rand: rand.New(rand.NewPCG(seed, 1)),
				exports: map[string]map[types.NamespacedName]v1alpha1.ExportedService{
					"east":  {},
					"west":  {},
					"north": {},
					"south": {},
				},
				hidden: map[string]bool{},
			}
			for range 60 {
				for range 1 + w.IntN(3) {
					w.step()
				}
				if w.IntN(4) == 0 {
					w.apply(w.plan()) // More changes come before the result has settled.
					continue
				}
				w.settle()
				w.check()
			}

			// When all pages are there, nothing of before is left.
			clear(w.hidden)
			for cluster := range w.exports {
				w.republish(cluster)
			}
			w.settle()
			w.checkComplete()
			for cluster := range w.exports {
				clear(w.exports[cluster])
				w.republish(cluster)
			}
			w.settle()
			require.Empty(t, w.imports)
			require.Empty(t, w.services)
			require.Empty(t, w.apiServer.slices)
		})
	}
}

// check checks what holds whenever all results are applied.
func (w *walk) check() {
	t := w.t
	for key, i := range w.imports {
		service := w.services[types.NamespacedName{Namespace: key.Namespace, Name: DerivedName(key)}]
		require.NotEmpty(t, i.Status.Clusters)
		require.True(t, w.view.Namespaces[key.Namespace])
		if i.Spec.Type == mcsv1alpha1.Headless {
			require.Nil(t, service)
			require.Empty(t, i.Spec.IPs)
		} else {
			require.Equal(t, []string{service.Spec.ClusterIP}, i.Spec.IPs)
			require.Equal(t, i.UID, service.OwnerReferences[0].UID)
			require.Empty(t, service.Spec.Selector)
			require.Len(t, service.Spec.Ports, len(i.Spec.Ports))
		}
		require.Equal(t, "Ready", i.Status.Conditions[0].Reason)
		require.False(t, i.Status.Conditions[0].LastTransitionTime.IsZero())
	}
	require.LessOrEqual(t, len(w.services), len(w.imports))
	for _, s := range w.apiServer.slices {
		w.checkSlice(s)
	}
}

func (w *walk) checkSlice(s *discoveryv1.EndpointSlice) {
	t := w.t
	key := types.NamespacedName{Namespace: s.Namespace, Name: s.Labels[mcsv1alpha1.LabelServiceName]}
	source := s.Labels[mcsv1alpha1.LabelSourceCluster]
	i := w.imports[key]
	require.NotNil(t, i, "a slice without import")
	require.True(t,
		slices.ContainsFunc(i.Status.Clusters, func(c mcsv1alpha1.ClusterStatus) bool { return c.Cluster == source }))
	require.Equal(t, i.UID, s.OwnerReferences[len(s.OwnerReferences)-1].UID)
	_, ignored := s.Labels[corev1.IsHeadlessService]
	require.Equal(t, i.Spec.Type == mcsv1alpha1.Headless, ignored)
	for _, e := range s.Endpoints {
		ip := netip.MustParseAddr(e.Addresses[0])
		n := byte(clusterNumbers[source])
		require.Contains(t, []byte{n, 100 + n}, ip.As4()[1], "an endpoint of another cluster")
	}
	if w.hidden[source] {
		return
	}
	record := w.exports[source][key]
	for _, p := range s.Ports {
		at := slices.IndexFunc(i.Spec.Ports,
			func(o mcsv1alpha1.ServicePort) bool { return o.Name == *p.Name && o.Protocol == *p.Protocol })
		require.GreaterOrEqual(t, at, 0, "a port that the import does not have")
		require.True(
			t,
			slices.ContainsFunc(record.Ports,
				func(o v1alpha1.ExportedPort) bool { return isPort(i.Spec.Ports[at], o) }),
			"a port that the exporter does not have",
		)
	}
}

// checkComplete checks that exactly the Services are imported that are exported.
func (w *walk) checkComplete() {
	want := map[types.NamespacedName]bool{}
	for cluster, records := range w.exports {
		for key := range records {
			if w.view.Namespaces[key.Namespace] && (cluster == "east" || w.member(cluster) != nil) {
				want[key] = true
			}
		}
	}
	have := map[types.NamespacedName]bool{}
	for key, i := range w.imports {
		have[key] = true
		for _, c := range i.Status.Clusters {
			require.Contains(w.t, w.exports[c.Cluster], key)
		}
	}
	require.Equal(w.t, want, have)
}
