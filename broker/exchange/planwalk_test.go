package exchange_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker/brokertest"
	"subctl/broker/exchange"
)

// world is two sides that random things happen to.
type world struct {
	local map[string]client.Object
	sets  map[string]map[string]client.Object
}

func id(o client.Object) string { return fmt.Sprintf("%T/%s", o, o.GetName()) }

func (w *world) snapshot(own string) exchange.Snapshot {
	s := exchange.Snapshot{
		ClusterID: own,
		Namespace: here,
		Local:     slices.Collect(maps.Values(w.local)),
		Identity:  brokertest.Identity(own),
		Now:       now,
	}
	for name, objects := range w.sets {
		s.Sets = append(s.Sets, unsigned(name, slices.Collect(maps.Values(objects))...))
	}
	return s
}

func (w *world) apply(t *testing.T, writes []exchange.Write) {
	for _, write := range writes {
		side := w.local
		if write.Set != "" {
			side = w.sets[write.Set]
		}
		_, exists := side[id(write.Object)]
		require.Equal(t, write.Op != exchange.Create, exists, "%s", write)
		if write.Op == exchange.Delete {
			delete(side, id(write.Object))
		} else {
			side[id(write.Object)] = write.Object.DeepCopyObject().(client.Object)
		}
	}
}

// Whatever happened on either side: one sync makes them the same, and a second has nothing to do
// but to take a new signature over from one clusterset to the others; what is of others there and
// of nobody here is untouched.
func TestSyncConverges(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	ids := []string{"east", "east-b", "west", "e"}
	for range 150 {
		w := &world{
			local: map[string]client.Object{},
			sets:  map[string]map[string]client.Object{"default": {}, "lab": {}},
		}
		for range 4 {
			for range r.IntN(8) {
				o := mischief(r, ids)
				side := []map[string]client.Object{w.local, w.sets["default"], w.sets["lab"]}[r.IntN(3)]
				signed("default", o)
				if r.IntN(4) == 0 {
					delete(side, id(o))
				} else {
					side[id(o)] = o
				}
			}
			snapshot := w.snapshot("east")
			before := foreign(w)
			writes, _, _ := exchange.Plan(exchange.Kinds(), snapshot)
			w.apply(t, writes)
			require.Equal(t, before, foreign(w))
			again, _, _ := exchange.Plan(exchange.Kinds(), w.snapshot("east"))
			for _, write := range again {
				require.True(t, write.Set != "" && write.Op == exchange.Update, "%s", write)
				have := w.sets[write.Set][id(write.Object)]
				require.Equal(t, withoutProofs(have), withoutProofs(write.Object), "%s", write)
			}
			w.apply(t, again)
			again, _, _ = exchange.Plan(exchange.Kinds(), w.snapshot("east"))
			require.Empty(t, texts(again))
			for name, objects := range w.sets {
				for _, o := range objects {
					owner := o.GetLabels()[submarinerv1.ClusterIDLabel]
					member := objects[id(cluster("x", owner))]
					if valid(o, owner) && owner != "east" && member != nil && valid(member, owner) &&
						member.GetLabels()[submarinerv1.ClusterIDLabel] == owner {
						have := w.local[id(o)]
						require.NotNil(t, have)
						if have.GetLabels()[submarinerv1.ClusterIDLabel] != "" &&
							have.GetLabels()[submarinerv1.ClusterIDLabel] != "east" {
							require.Contains(t, have.GetAnnotations()[submarinerv1.ClusterSetsAnnotation], name)
						}
					}
				}
			}
			for _, o := range w.local {
				if o.GetLabels()[submarinerv1.ClusterIDLabel] == "" && valid(o, "east") {
					for _, objects := range w.sets {
						require.Equal(t, "east", objects[id(o)].GetLabels()[submarinerv1.ClusterIDLabel])
					}
				}
			}
		}
	}
}

// mischief returns an object that may or may not be what it says.
func mischief(r *rand.Rand, ids []string) client.Object {
	pick := func() string { return ids[r.IntN(len(ids))] }
	owner := pick()
	var o client.Object = cluster("x", owner)
	if r.IntN(2) == 0 {
		e := endpoint("x", owner, fmt.Sprint(r.IntN(3)))
		e.Spec.Hostname = fmt.Sprint(r.IntN(2))
		if r.IntN(9) == 0 {
			e.Spec.ClusterID = pick()
		}
		o = e
	}
	switch r.IntN(6) {
	case 0:
		o.SetLabels(map[string]string{submarinerv1.ClusterIDLabel: pick()})
	case 1, 2:
		o.SetLabels(nil)
	}
	if r.IntN(4) == 0 {
		o.SetAnnotations(
			map[string]string{
				submarinerv1.ClusterSetsAnnotation: []string{"", "lab", "gone", "default,lab"}[r.IntN(4)],
			},
		)
	}
	return o
}

// valid says that o is an object of cluster id, from its fields alone.
func valid(o client.Object, id string) bool {
	switch o := o.(type) {
	case *submarinerv1.Cluster:
		return o.Name == id && o.Spec.ClusterID == id
	case *submarinerv1.Endpoint:
		return o.Spec.ClusterID == id && o.Name == id+"-"+o.Spec.CableName &&
			strings.HasPrefix(o.Spec.CableName, "submariner-cable-"+id+"-")
	}
	return false
}

// foreign is what a sync must never write, as text: here what is not a copy, and
// there what is not named like ours.
func foreign(w *world) (out []string) {
	for _, o := range w.local {
		if l := o.GetLabels()[submarinerv1.ClusterIDLabel]; l == "" || l == "east" {
			out = append(out, fmt.Sprintf("%+v", o))
		}
	}
	for name, objects := range w.sets {
		for _, o := range objects {
			if o.GetName() != "east" && !strings.HasPrefix(o.GetName(), "east-submariner-cable-east-") {
				out = append(out, name+fmt.Sprintf("%+v", o))
			}
		}
	}
	slices.Sort(out)
	return out
}
