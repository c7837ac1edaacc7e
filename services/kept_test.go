package services

import (
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/api/submariner/v1alpha1"
)

func TestMissingPages(t *testing.T) {
	full := func(r *v1alpha1.ExportedService) {
		r.AffinitySeconds = 10
		r.InternalTrafficPolicy = "Local"
		r.TrafficDistribution = "PreferClose"
		r.Spread = true
		r.Direct = true
		r.Labels = map[string]string{"team": "a"}
		r.Annotations = map[string]string{"a": "b"}
		r.Ports[0].AppProtocol = "http"
	}
	other := named("shop", "other")
	pages := func(w *world, list ...*v1alpha1.ExportedServices) {
		w.publish("west", list...)
	}
	for name, c := range map[string]struct {
		missing  func(*world)
		complete bool
	}{
		"one of two":        {missing: func(w *world) { pages(w, page("west", 1, 2, webOf("west", other))) }},
		"all":               {missing: func(w *world) { pages(w) }},
		"a new count":       {missing: func(w *world) { pages(w, page("west", 0, 1), page("west", 1, 2)) }},
		"a higher count":    {missing: func(w *world) { pages(w, page("west", 0, 3), page("west", 1, 3)) }},
		"a page of another": {missing: func(w *world) { pages(w, page("north", 0, 1)) }},
		"no networks": {missing: func(w *world) {
			pages(w, page("west", 0, 1))
			w.member("west").PodNetworks = nil
			w.member("west").ServiceNetworks = nil
		}},
		"none: one empty page": {missing: func(w *world) { pages(w, page("west", 0, 1)) }, complete: true},
		"none: no pages":       {missing: func(w *world) { pages(w, page("west", 0, 0)) }, complete: true},
		"none: fewer pages": {
			missing:  func(w *world) { pages(w, page("west", 0, 1), page("west", 1, 1)) },
			complete: true,
		},
		"no member any more": {missing: func(w *world) { w.leave("west") }, complete: true},
		"namespace is gone": {
			missing:  func(w *world) { pages(w); delete(w.view.Namespaces, "shop") },
			complete: true,
		},
		"rules exclude it": {
			missing:  func(w *world) { pages(w); w.view.Rules = []v1alpha1.ImportRule{{Namespaces: []string{"shop"}}} },
			complete: true,
		},
		"the record is refused": {missing: func(w *world) {
			pages(w, page("west", 1, 2, webOf("west", func(r *v1alpha1.ExportedService) { r.Address = "192.0.2.1" })))
		}, complete: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.publish("west", page("west", 0, 2, webOf("west", full)), page("west", 1, 2, webOf("west", other)))
			w.settle()
			w.imported().Labels["added"] = "by-somebody"
			before := w.imported().DeepCopy()
			endpoints := w.endpoints("west")
			writes := w.writes

			c.missing(w)
			w.settle()
			if c.complete {
				require.NotContains(t, w.imports, web)
				require.Empty(t, w.endpoints("west"))
				return
			}
			require.Equal(t, before, w.imported())
			require.Equal(t, endpoints, w.endpoints("west"))
			require.Equal(t, writes, w.writes, "nothing changes")

			// Others come and go beside it, and do not decide.
			w.export("north", webOf("north", ports("http 81/TCP 81", "new 82/TCP 82"), exportedAt(1)))
			w.settle()
			require.Equal(t, []string{"west", "north"}, w.clusters())
			require.Equal(t, []string{"http 80/TCP", "new 82/TCP"}, w.ports())
			require.Equal(t, before.Spec.SessionAffinityConfig, w.imported().Spec.SessionAffinityConfig)
			require.Equal(t, endpoints, w.endpoints("west"))
			w.export("north")
			w.settle()
			require.Equal(t, before, w.imported())

			// The pages come, and all is as before.
			w.publish("west", page("west", 0, 2, webOf("west", full)), page("west", 1, 2, webOf("west", other)))
			w.settle()
			require.Equal(t, before, w.imported())
			require.Equal(t, endpoints, w.endpoints("west"))
		})
	}
}

func TestNewRecordsOfIncompletePagesCount(t *testing.T) {
	w := newWorld(t)
	w.publish("west", page("west", 1, 2, webOf("west")))
	w.settle()
	require.Equal(t, []string{"west"}, w.clusters())
}

func TestRecordsMoveBetweenPages(t *testing.T) {
	w := newWorld(t)
	w.publish("west", page("west", 0, 2, webOf("west")), page("west", 1, 2))
	w.settle()
	writes := w.writes
	w.publish("west", page("west", 0, 2, webOf("west")), page("west", 1, 2, webOf("west")))
	w.settle()
	w.publish("west", page("west", 0, 2), page("west", 1, 2, webOf("west")))
	w.settle()
	require.Equal(t, writes, w.writes)
}

func TestKeptHeadlessWithoutEndpoints(t *testing.T) {
	w := newWorld(t)
	w.export("west", webOf("west", asHeadless, func(r *v1alpha1.ExportedService) { r.Endpoints = nil }))
	w.settle()
	writes := w.writes
	w.publish("west")
	w.settle()
	require.Equal(t, []string{"http 80/TCP"}, w.ports())
	require.Equal(t, writes, w.writes)
}

func TestKeptSpread(t *testing.T) {
	w := newWorld(t)
	w.view.Own = []v1alpha1.ExportedService{webOf("east", exportedAt(2000))}
	w.export("west", webOf("west", func(r *v1alpha1.ExportedService) { r.Spread = true }))
	w.settle()
	writes := w.writes
	w.publish("west")
	w.settle()
	require.Empty(t, w.hints("east"))
	require.Equal(t, writes, w.writes)
}

func TestKeptWithoutStatus(t *testing.T) {
	w := newWorld(t)
	w.export("west", webOf("west"))
	w.settle()
	w.imported().Status.Clusters = nil
	w.publish("west")
	w.export("north", webOf("north", asHeadless, exportedAt(-1)))
	w.settle()
	require.Equal(t, []string{"west"}, w.clusters())
	require.NotEmpty(t, w.endpoints("west"))
}

func TestNoNetworks(t *testing.T) {
	w := newWorld(t)
	w.export("west", webOf("west"))
	w.member("west").PodNetworks = nil
	w.member("west").ServiceNetworks = nil
	w.settle()
	require.Empty(t, w.imports)
	require.Equal(t, []string{"west shop/web: waiting until the cluster announces networks"}, w.refusals())
}

func TestKeptSlicesOfAnImportThatIsGone(t *testing.T) {
	w := newWorld(t)
	w.export("west", webOf("west", asHeadless, ports()))
	w.settle()
	delete(w.imports, web)
	w.publish("west")
	w.export("north", webOf("north"))
	for range 4 { // Kubernetes does not collect the slices of west yet.
		w.apply(w.plan())
	}
	require.Equal(t, []string{"north"}, w.clusters())
	require.Empty(t, w.endpoints("west"))
}

// A member withholds a page, and announces no more where its endpoints are.
func TestHostileWithheldPage(t *testing.T) {
	w := newWorld(t)
	w.publish("west", page("west", 0, 64, webOf("west")))
	w.settle()
	require.NotEmpty(t, w.endpoints("west"))
	w.publish("west", page("west", 0, 64))
	w.settle()
	require.NotEmpty(t, w.endpoints("west"), "the record may be in another page")
	w.member("west").PodNetworks = prefixes("10.3.0.0/16")
	require.Contains(t, w.plan().Refused[0].Reason, "is in no pod or Service network")
	w.settle()
	require.Empty(t, w.imports)
}

// The endpoints of a cluster are not used while it is unreachable, also if a page of it is missing,
// and are used again as they were; so are those that give way to own ones.
func TestMissingPagesOfAnUnreachableCluster(t *testing.T) {
	states := func(r *v1alpha1.ExportedService) {
		r.Endpoints[0].Pods = []v1alpha1.ExportedEndpoint{
			{IP: podIP("west", 1)},
			{IP: podIP("west", 2), State: v1alpha1.EndpointNotReady},
			{IP: podIP("west", 3), State: v1alpha1.EndpointServing},
			{IP: podIP("west", 4), State: v1alpha1.EndpointTerminating},
		}
	}
	w := newWorld(t)
	w.publish("west", page("west", 0, 1, webOf("west", states)))
	w.export("north", webOf("north"))
	w.settle()
	w.publish("west", page("west", 1, 2))
	w.settle()
	before := w.endpoints("west")
	require.Len(t, before, 4)

	w.member("west").Unreachable = true
	w.settle()
	require.Equal(t, WithheldUnreachable, w.slicesOf("west")[0].Annotations[WithheldAnnotation])
	require.Equal(t, serviceIP("west"), w.slicesOf("west")[0].Annotations[AddressAnnotation])
	for _, e := range w.slicesOf("west")[0].Endpoints {
		require.False(t, *e.Conditions.Ready || *e.Conditions.Serving)
	}
	writes := w.writes
	w.settle()
	require.Equal(t, writes, w.writes)

	w.member("west").Unreachable = false
	w.settle()
	require.Equal(t, []string{before[0], before[2]}, w.endpoints("west"))
	require.NotContains(t, w.slicesOf("west")[0].Annotations, WithheldAnnotation)

	w.view.Hints = false
	w.view.Own = []v1alpha1.ExportedService{webOf("east")}
	w.settle()
	require.Equal(t, WithheldLocalFirst, w.slicesOf("west")[0].Annotations[WithheldAnnotation])
	w.view.Own = []v1alpha1.ExportedService{webOf("east", notReady)}
	w.settle()
	require.Equal(t, []string{before[0], before[2]}, w.endpoints("west"))

	w.publish("west", page("west", 0, 1, webOf("west", states)))
	w.settle()
	require.Len(t, w.endpoints("west"), 4)
}
