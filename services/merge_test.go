package services

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"subctl/api/submariner/v1alpha1"
)

// portsOf returns the ports of shop/web as text.
func (w *world) ports() (out []string) {
	w.t.Helper()
	for _, p := range w.imported().Spec.Ports {
		out = append(out, fmt.Sprintf("%s %d/%s", p.Name, p.Port, p.Protocol))
	}
	return out
}

func TestPortsOfAllExporters(t *testing.T) {
	for name, c := range map[string]struct {
		west, north []string // the older one first
		want        []string
		atNorth     []string // its endpoints
		conflict    bool
	}{
		"the same": {
			west:    []string{"http 80/TCP 8080"},
			north:   []string{"http 80/TCP 8081"},
			want:    []string{"http 80/TCP"},
			atNorth: []string{"http=8081"},
		},
		"in another order": {
			west:    []string{"a 1/TCP 1", "b 2/TCP 2"},
			north:   []string{"b 2/TCP 2", "a 1/TCP 1"},
			want:    []string{"a 1/TCP", "b 2/TCP"},
			atNorth: []string{"b=2 a=1"},
		},
		"union": {
			west:     []string{"http 80/TCP 8080"},
			north:    []string{"http 80/TCP 8080", "dns 53/UDP 53"},
			want:     []string{"http 80/TCP", "dns 53/UDP"},
			atNorth:  []string{"http=8080 dns=53"},
			conflict: true,
		},
		"the same name with another number: only the older cluster has the port": {
			west:     []string{"http 80/TCP 8080"},
			north:    []string{"http 81/TCP 8080"},
			want:     []string{"http 80/TCP"},
			conflict: true,
		},
		"the same number with another name: the endpoints have the name of the import": {
			west:     []string{"http 80/TCP 8080"},
			north:    []string{"web 80/TCP 8080"},
			want:     []string{"http 80/TCP"},
			atNorth:  []string{"http=8080"},
			conflict: true,
		},
		"the same number with another protocol": {
			west:     []string{"tcp 53/TCP 53"},
			north:    []string{"udp 53/UDP 53"},
			want:     []string{"tcp 53/TCP", "udp 53/UDP"},
			atNorth:  []string{"udp=53"},
			conflict: true,
		},
		"names exchanged: each number keeps its target": {
			west:     []string{"a 1/TCP 11", "b 2/TCP 12"},
			north:    []string{"a 2/TCP 22", "b 1/TCP 21"},
			want:     []string{"a 1/TCP", "b 2/TCP"},
			atNorth:  []string{"b=22 a=21"},
			conflict: true,
		},
		"two ports with one target": {
			west:    []string{"a 1/TCP 8080", "b 2/TCP 8080"},
			north:   []string{"a 1/TCP 8080", "b 2/TCP 8080"},
			want:    []string{"a 1/TCP", "b 2/TCP"},
			atNorth: []string{"a=8080 b=8080"},
		},
		"no name beside another port: a Service cannot have both": {
			west:     []string{"- 80/TCP 8080"},
			north:    []string{"http 81/TCP 8080"},
			want:     []string{" 80/TCP"},
			conflict: true,
		},
		"no name with the same number": {
			west:     []string{"http 80/TCP 8080"},
			north:    []string{"- 80/TCP 8080"},
			want:     []string{"http 80/TCP"},
			atNorth:  []string{"http=8080"},
			conflict: true,
		},
		"a target that the endpoints do not have": {
			west:    []string{"a 1/TCP 1", "b 2/TCP 2"},
			north:   []string{"a 1/TCP 1", "b 2/TCP 0"},
			want:    []string{"a 1/TCP", "b 2/TCP"},
			atNorth: []string{"a=1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.export("west", webOf("west", ports(c.west...)))
			w.export("north", webOf("north", ports(c.north...), exportedAt(2000)))
			w.settle()
			require.Equal(t, c.want, w.ports())
			var atNorth []string
			for _, e := range w.endpoints("north") {
				atNorth = append(atNorth, e[len(podIP("north", 1)+" ready serving "):])
			}
			require.Equal(t, c.atNorth, atNorth)
			if c.conflict {
				require.Equal(t, []string{"PortConflict"}, w.last.Conflicts[web].Reasons)
			} else {
				require.Empty(t, w.last.Conflicts)
			}
		})
	}
}

func TestConflicts(t *testing.T) {
	for reason, c := range map[string]struct {
		west, north func(*v1alpha1.ExportedService)
		message     string
	}{
		"PortConflict": {
			ports("http 80/TCP 8080"), ports("http 81/TCP 8080"),
			"ports http 80/TCP; cluster north exports ports http 81/TCP",
		},
		"TypeConflict": {
			func(*v1alpha1.ExportedService) {}, asHeadless,
			"type ClusterSetIP; cluster north exports type Headless",
		},
		"SessionAffinityConflict": {
			func(r *v1alpha1.ExportedService) { r.AffinitySeconds = 10 }, func(*v1alpha1.ExportedService) {},
			"sessionAffinity ClientIP; cluster north exports sessionAffinity None",
		},
		"SessionAffinityConfigConflict": {
			func(r *v1alpha1.ExportedService) { r.AffinitySeconds = 10 },
			func(r *v1alpha1.ExportedService) { r.AffinitySeconds = 20 },
			"timeoutSeconds 10; cluster north exports timeoutSeconds 20",
		},
		"LabelsConflict": {
			func(r *v1alpha1.ExportedService) { r.Labels = map[string]string{"a": "1"} },
			func(*v1alpha1.ExportedService) {},
			"exportedLabels a=1; cluster north exports exportedLabels none",
		},
		"AnnotationsConflict": {
			func(r *v1alpha1.ExportedService) { r.Annotations = map[string]string{"a": "1"} },
			func(r *v1alpha1.ExportedService) { r.Annotations = map[string]string{"a": "2"} },
			"exportedAnnotations a=1; cluster north exports exportedAnnotations a=2",
		},
		"InternalTrafficPolicyConflict": {
			func(r *v1alpha1.ExportedService) { r.InternalTrafficPolicy = "Local" }, func(*v1alpha1.ExportedService) {},
			"internalTrafficPolicy Local; cluster north exports internalTrafficPolicy Cluster",
		},
		"SpreadConflict": {
			func(r *v1alpha1.ExportedService) { r.Spread = true }, func(*v1alpha1.ExportedService) {},
			"with annotation submariner.io/spread; cluster north exports without annotation submariner.io/spread",
		},
		"DirectConflict": {
			func(*v1alpha1.ExportedService) {}, func(r *v1alpha1.ExportedService) { r.Direct = true },
			"without annotation submariner.io/direct; cluster north exports with annotation submariner.io/direct",
		},
		"TrafficDistributionConflict": {
			func(*v1alpha1.ExportedService) {},
			func(r *v1alpha1.ExportedService) { r.TrafficDistribution = "PreferClose" },
			"trafficDistribution unset; cluster north exports trafficDistribution PreferClose",
		},
	} {
		t.Run(reason, func(t *testing.T) {
			for _, younger := range []string{"north", "west"} {
				w := newWorld(t)
				ages := map[string]int64{"west": 1000, "north": 1000, younger: 2000}
				w.export("west", webOf("west", c.west, exportedAt(ages["west"])))
				w.export("north", webOf("north", c.north, exportedAt(ages["north"])))
				w.settle()
				require.Equal(t, []string{reason}, w.last.Conflicts[web].Reasons)
				if younger == "north" {
					require.Equal(t, "cluster west decides, and exports "+c.message, w.last.Conflicts[web].Message)
				}
				require.Equal(t, map[string]string{"north": "west", "west": "north"}[younger], w.clusters()[0],
					"the older one decides")

				w.export(younger)
				w.settle()
				require.Empty(t, w.last.Conflicts)
			}
		})
	}

	t.Run("several", func(t *testing.T) {
		w := newWorld(t)
		w.export("west", webOf("west"))
		for _, cluster := range []string{"north", "south"} {
			w.export(
				cluster,
				webOf(cluster, ports("http 81/TCP 8080"), exportedAt(2000),
					func(r *v1alpha1.ExportedService) { r.AffinitySeconds = 5 }),
			)
		}
		w.settle()
		require.Equal(t, []string{"PortConflict", "SessionAffinityConflict"}, w.last.Conflicts[web].Reasons)
		require.Equal(
			t,
			"cluster west decides, and exports ports http 80/TCP; cluster north exports ports http 81/TCP (2 clusters differ); "+
				"cluster west decides, and exports sessionAffinity None; cluster north exports sessionAffinity ClientIP (2 clusters differ)",
			w.last.Conflicts[web].Message,
		)
	})
	t.Run("the default in other words", func(t *testing.T) {
		w := newWorld(t)
		w.export(
			"west",
			webOf("west", func(r *v1alpha1.ExportedService) { r.InternalTrafficPolicy = "Cluster" },
				ports("http 80/TCP 8080")),
		)
		w.export("north", webOf("north"))
		w.settle()
		require.Empty(t, w.last.Conflicts)
	})
}

func TestTiesGoToTheFirstID(t *testing.T) {
	w := newWorld(t)
	w.view.Own = []v1alpha1.ExportedService{webOf("east")}
	w.export("west", webOf("west"))
	w.export("north", webOf("north"))
	w.settle()
	require.Equal(t, []string{"east", "north", "west"}, w.clusters())
}

func TestWhoWasFirstDecides(t *testing.T) {
	w := newWorld(t)
	w.export("west", webOf("west", ports("http 80/TCP 8080")))
	w.settle()
	w.export("south", webOf("south", exportedAt(5000)))
	w.settle()
	w.export("north", webOf("north", ports("http 81/TCP 8080"), exportedAt(500)))
	w.settle()
	require.Equal(t, []string{"west", "south", "north"}, w.clusters())
	require.Equal(t, []string{"http 80/TCP"}, w.ports())

	// When they end, the next one decides.
	w.export("west")
	w.export("south")
	w.settle()
	require.Equal(t, []string{"http 81/TCP"}, w.ports())
	w.export("west", webOf("west"))
	w.settle()
	require.Equal(t, []string{"north", "west"}, w.clusters())
	require.Equal(t, []string{"http 81/TCP"}, w.ports())
}

func TestHeadlessAgainstNotHeadless(t *testing.T) {
	w := newWorld(t)
	w.export("west", webOf("west"))
	w.export("north", webOf("north", asHeadless, exportedAt(2000)))
	w.settle()
	require.Equal(t, mcsv1alpha1.ClusterSetIP, w.imported().Spec.Type)
	require.Equal(t, []string{"west"}, w.clusters())
	require.Empty(t, w.endpoints("north"))
	require.Equal(t,
		[]string{"north shop/web: it has type Headless, and cluster west, which was first, exports type ClusterSetIP"},
		w.refusals())
}

func TestHostileAge(t *testing.T) {
	w := newWorld(t)
	w.export("west", webOf("west"))
	w.export("south", webOf("south"))
	w.settle()
	before := w.imported().Spec

	// A member claims the oldest export, and another type.
	w.export("north", webOf("north", asHeadless, exportedAt(-1<<62)))
	w.settle()
	require.Equal(t, before, w.imported().Spec)
	require.NotEmpty(t, w.endpoints("west"))
	require.NotEmpty(t, w.endpoints("south"))

	// It is no heir either while others of the type are there.
	w.export("south")
	w.settle()
	require.Equal(t, before, w.imported().Spec)

	// A member that decides changes the type: the endpoints of the others stay.
	w.export("south", webOf("south"))
	w.settle()
	w.export("west", webOf("west", asHeadless))
	w.settle()
	require.Equal(t, before, w.imported().Spec)
	require.NotEmpty(t, w.endpoints("south"))
	require.Empty(t, w.endpoints("west"))
}

// Exports of the same time may arrive in any order: at first the oldest decides, in all clusters
// alike.
func TestOldestDecidesAboutYoungImports(t *testing.T) {
	for age, want := range map[time.Duration][]string{
		settling - time.Second: {"north", "west"}, settling: {"west", "north"},
	} {
		w := newWorld(t)
		w.export("west", webOf("west", exportedAt(2000)))
		w.settle()
		for _, i := range w.apiServer.imports {
			i.CreationTimestamp = metav1.NewTime(w.view.Now.Add(-age))
		}
		w.export("north", webOf("north", exportedAt(1000), ports("http 81/TCP 8081")))
		w.settle()
		require.Equal(t, want, w.clusters(), age)
		w.view.Now = w.view.Now.Add(time.Hour)
		w.settle()
		require.Equal(t, want, w.clusters(), age)
	}
}

func TestHostileClaimWhileTheTypeChanges(t *testing.T) {
	w := newWorld(t)
	w.export("west", webOf("west"))
	w.settle()
	w.export("west", webOf("west", asHeadless))
	w.export("north", webOf("north", exportedAt(-1<<62)))
	w.settle()
	require.Equal(t, []string{"west"}, w.clusters())
	require.Equal(t, mcsv1alpha1.Headless, w.imported().Spec.Type)
}

func TestHostilePortsOfOthers(t *testing.T) {
	w := newWorld(t)
	w.export("west", webOf("west", ports("http 80/TCP 8080", "admin 81/TCP 8081")))
	w.settle()

	// Ports with the names of others and other numbers, with their numbers and other names, and
	// many more.
	var list []string
	list = append(list, "http 81/TCP 6666", "admin 80/TCP 6666")
	for n := range 30 {
		list = append(list, fmt.Sprintf("p%d %d/TCP 6666", n, 1000+n))
	}
	w.export("north", webOf("north", ports(list...), exportedAt(1)))
	list = nil
	for n := range 32 {
		list = append(list, fmt.Sprintf("q%d %d/TCP 6666", n, 2000+n))
	}
	w.export("south", webOf("south", ports(list...), exportedAt(1)))
	w.settle()
	require.Equal(t, []string{"http 80/TCP", "admin 81/TCP"}, w.ports()[:2])
	require.Len(t, w.ports(), 32)
	require.Equal(t, []string{podIP("west", 1) + " ready serving http=8080 admin=8081"}, w.endpoints("west"))
	require.True(t, slices.Contains(w.last.Conflicts[web].Reasons, "PortConflict"))
	require.Less(t, len(w.last.Conflicts[web].Message), 2048)
}
