package exchange_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker/brokertest"
	"subctl/broker/exchange"
)

type policies = map[string]*v1alpha1.CablePolicies // by the names that the API server knows them by

// federation is clusters and their broker, to which random things happen.
type federation struct {
	clusters map[string]policies // by cluster ID
	in       map[string][]string // the clustersets a cluster is in
	sets     map[string]policies // by clusterset
	uids     int
	clock    int64 // milliseconds
	memories map[string]exchange.Memory
}

func newFederation() *federation {
	return &federation{
		clusters: map[string]policies{"east": {}, "west": {}, "north": {}},
		in:       map[string][]string{"east": {"default", "lab"}, "west": {"default", "lab"}, "north": {"default"}},
		sets:     map[string]policies{"default": {}, "lab": {}},
		clock:    brokertest.Sequence, memories: map[string]exchange.Memory{},
	}
}

// happen does one thing that people do, on a cluster or on the broker.
func (f *federation) happen(r *rand.Rand) {
	name := []string{"default", "a", "b", "a.lab", "b.default"}[r.IntN(5)]
	fresh := cablePolicy(name, []string{"vxlan", "ipsec", "gre"}[r.IntN(3)])
	f.uids++
	fresh.UID = types.UID(fmt.Sprint(f.uids))
	var there policies
	set := ""
	if r.IntN(4) == 0 {
		set = []string{"default", "lab"}[r.IntN(2)]
		there = f.sets[set]
		// with a mistake, it would depend on what was there before
		fresh.ConnectionPolicies[0].CableDriver = "wireguard"
	} else {
		there = f.clusters[slices.Sorted(maps.Keys(f.clusters))[r.IntN(3)]]
		if r.IntN(4) == 0 {
			fresh.Labels = map[string]string{
				submarinerv1.ClusterSetLabel: []string{"lab", "default", "gone"}[r.IntN(3)],
			}
		}
	}
	if names := slices.Sorted(maps.Keys(there)); set != "" && len(names) > 0 && r.IntN(3) > 0 {
		name = names[r.IntN(len(names))]
	}
	have := there[name]
	before := there[name]
	switch r.IntN(4) {
	case 0:
		delete(there, name)
	case 1: // kubectl edit, of whatever it is
		if have != nil {
			have = have.DeepCopy()
			have.ConnectionPolicies, have.Generation = fresh.ConnectionPolicies, have.Generation+1
			there[name] = have
		}
	case 2: // kubectl label, of whatever it is
		if have != nil && r.IntN(3) == 0 {
			have = have.DeepCopy()
			have.Labels = []map[string]string{
				nil,
				{submarinerv1.ClusterIDLabel: "west"},
				{submarinerv1.ClusterIDLabel: "BROKER", submarinerv1.ClusterSetLabel: "lab"},
			}[r.IntN(3)]
			there[name] = have
		}
	default:
		if have == nil {
			there[name] = fresh
		}
	}
	if now := there[name]; set != "" && now != nil && now != before {
		if id, ok := submarinerv1.OwnerID(now); !ok || id == submarinerv1.BrokerID { // with the administrator's key
			f.clock++
			there[name] = brokertest.SignAt(now.DeepCopy(), set, f.clock)
		}
	}
}

// sync has one cluster do what it would do, and returns what that was. A write fails
// if somebody was faster, as on an API server.
func (f *federation) sync(id string, away ...string) []exchange.Write {
	writes := f.plan(id, away...)
	for _, w := range writes {
		f.write(id, w)
	}
	return writes
}

// race has several clusters do what they would do, none of which knows what the others do.
func (f *federation) race(ids ...string) {
	var plans [][]exchange.Write
	for _, id := range ids {
		plans = append(plans, f.plan(id))
	}
	for i, id := range ids {
		for _, w := range plans[i] {
			f.write(id, w)
		}
	}
}

// plan returns what one cluster would do.
func (f *federation) plan(id string, away ...string) []exchange.Write {
	s := exchange.Snapshot{ClusterID: id, Namespace: here, Local: objectsOf(f.clusters[id])}
	for _, name := range f.in[id] {
		there := set(name)
		for _, o := range objectsOf(f.sets[name]) {
			o = o.DeepCopyObject().(client.Object)
			exchange.Kinds().FromBroker(o)
			there.Objects = append(there.Objects, o)
		}
		there.Known = !slices.Contains(away, name)
		s.Sets = append(s.Sets, there)
	}
	f.clock++
	s, _ = withMembers(s)
	s.Identity = brokertest.Identity(id)
	s.Now = time.UnixMilli(f.clock)
	s.Memory = f.memories[id]
	writes, _, memory := exchange.Plan(exchange.Kinds(), s)
	f.memories[id] = memory
	return slices.DeleteFunc(writes, func(w exchange.Write) bool { return isCluster(w.Object.GetName())(w.Object) })
}

func (f *federation) write(id string, w exchange.Write) {
	side := f.clusters[id]
	if w.Set != "" {
		side = f.sets[w.Set]
	}
	o := w.Object.DeepCopyObject().(*v1alpha1.CablePolicies)
	if w.Set != "" {
		exchange.Kinds().ToBroker(o)
	}
	have := side[o.Name]
	switch w.Op {
	case exchange.Create:
		if have == nil {
			f.uids++
			// several at one time
			o.UID = types.UID(fmt.Sprint(f.uids))
			o.CreationTimestamp = metav1.Unix(int64(f.uids/8), 0)
			side[o.Name] = o
		}
	case exchange.Delete:
		if have != nil && have.UID == o.UID {
			delete(side, o.Name)
		}
	case exchange.Report:
		if have != nil && have.UID == o.UID {
			have = have.DeepCopy()
			have.Status = o.Status
			side[o.Name] = have
		}
	default:
		if have != nil && have.UID == o.UID {
			side[o.Name] = o
		}
	}
}

func objectsOf(p policies) (out []client.Object) {
	for _, name := range slices.Sorted(maps.Keys(p)) {
		out = append(out, p[name])
	}
	return out
}

// made returns what people made in a cluster, as text.
func (f *federation) made(id string) (out []string) {
	for _, o := range f.clusters[id] {
		if madeIn(id, o) {
			out = append(out, fmt.Sprintf("%s %s %v %v", o.Name, o.UID, o.Labels, o.ConnectionPolicies))
		}
	}
	slices.Sort(out)
	return out
}

// madeIn reports whether a policy in a cluster was made there.
func madeIn(id string, o *v1alpha1.CablePolicies) bool {
	l, labelled := o.Labels[submarinerv1.ClusterIDLabel]
	return !labelled || l == id || len(o.Status.Conditions) > 0
}

// counting returns the policies that a cluster takes to count in a clusterset.
func (f *federation) counting(id, set string) (out []string) {
	for _, o := range f.clusters[id] {
		if madeIn(id, o) { // whatever labels it has: see mesh.NewSnapshot
			o = o.DeepCopy()
			o.Labels = nil
		}
		if slices.Contains(o.ClusterSets(), set) {
			out = append(out, fmt.Sprintf("%s %v", o.SharedName(), o.InForce()))
		}
	}
	slices.Sort(out)
	return out
}

// held returns the policies that the broker holds in a clusterset, but for those with
// names that cannot be shared.
func (f *federation) held(set string) (out []string) {
	for _, o := range f.sets[set] {
		name := cmp.Or(o.Annotations[submarinerv1.NameAnnotation], o.Name)
		if name != "a.lab" && name != "b.default" {
			out = append(out, fmt.Sprintf("%s %v", name, o.ConnectionPolicies))
		}
	}
	slices.Sort(out)
	return out
}

// Whatever people do, and in whatever order clusters hear of it: in the end all of
// them go by what the broker holds, nothing that a person made was touched, and what
// nobody made is gone.
func TestPoliciesConverge(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for run := range 150 {
		f := newFederation()
		for range 6 {
			for range r.IntN(8) {
				f.happen(r)
				if r.IntN(4) == 0 {
					f.race(slices.Sorted(maps.Keys(f.clusters))...)
				}
				if r.IntN(3) == 0 {
					f.sync(slices.Sorted(maps.Keys(f.clusters))[r.IntN(3)],
						[]string{"default", "lab", "none"}[r.IntN(3)])
				}
			}
			before := map[string][]string{}
			for id := range f.clusters {
				before[id] = f.made(id)
			}
			f.settle(t, r)
			for id := range f.clusters {
				require.Equal(t, before[id], f.made(id), "run %d: what was made in %s changed", run, id)
			}
			f.check(t, run)
		}
	}
}

// settle syncs clusters in any order until none has anything to do.
func (f *federation) settle(t *testing.T, r *rand.Rand) {
	t.Helper()
	for range 20 {
		busy := 0
		ids := slices.Sorted(maps.Keys(f.clusters))
		r.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
		for _, id := range ids {
			busy += len(f.sync(id))
		}
		if busy == 0 {
			return
		}
	}
	require.Fail(t, "the clusters do not come to rest")
}

func (f *federation) check(t *testing.T, run int) {
	t.Helper()
	for id, sets := range f.in {
		for _, set := range sets {
			if f.clusters[id]["a.lab"] == nil && f.clusters[id]["b.default"] == nil { // else that may be in the way
				require.Equal(t, f.held(set), f.counting(id, set), "run %d: %s in %s", run, id, set)
			}
		}
	}
	for set, there := range f.sets {
		for name, o := range there {
			require.NotEqual(t, "gre", o.ConnectionPolicies[0].CableDriver)
			id, ok := o.Labels[submarinerv1.ClusterIDLabel]
			if !ok || id == submarinerv1.BrokerID || name == "a.lab" || name == "b.default" {
				continue
			}
			require.Regexp(t, "^"+id+`\.[0-9]+$`, name)
			name = o.Annotations[submarinerv1.NameAnnotation]
			mine := f.clusters[id][name]
			require.NotNil(t, mine, "run %d: %s of %s is on the broker in %s, and not there", run, name, id, set)
			require.Equal(t, mine.Status.Rules, o.ConnectionPolicies)
			if mistaken := mine.ConnectionPolicies[0].CableDriver == "gre"; !mistaken {
				require.Equal(t, mine.ConnectionPolicies, o.ConnectionPolicies)
			}
			require.Contains(t, mine.Status.ClusterSets, set)
		}
	}
}
