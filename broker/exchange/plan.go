package exchange

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// This file decides what is written. Plan is a pure function of what both sides hold
// now, so an event that was missed, during an outage or while no gateway was active,
// makes no difference. A refused object is treated as if it did not exist. The objects of
// Named kinds are planned in named.go, the objects of Free kinds in free.go.

// Snapshot holds the objects of both sides.
type Snapshot struct {
	ClusterID string
	Namespace string // of this cluster
	Local     []client.Object
	Sets      []SetSnapshot

	Identity
	Memory Memory // what the Plan before has returned
	Now    time.Time

	memos *memos // nil: nothing is kept from one Plan to the next
}

// SetSnapshot holds the objects of a clusterset on the broker.
type SetSnapshot struct {
	Set
	// Known reports whether Objects has been read at least once. It may be old.
	Known   bool
	Objects []client.Object
	// Reserved has the owners of the empty objects, by <resource>/<name>; "" stands for none. If it
	// is nil, all are assumed to exist that are not in Objects, and objects of this cluster need no
	// slot.
	Reserved map[string]types.UID
}

// shared returns in how many clustersets each cluster has a Cluster.
func (s Snapshot) shared(kinds Table) map[string]int {
	out := map[string]int{}
	for _, set := range s.Sets {
		for _, o := range set.Objects {
			if i := kinds.index(o); i >= 0 && kinds[i].hasGrant() {
				out[o.GetName()]++
			}
		}
	}
	return out
}

// Op is an operation on an object.
type Op string

// The operations.
const (
	Create Op = "create"
	Update Op = "update"
	Delete Op = "delete"
	// Report writes the status of an object that was made here.
	Report Op = "report on"
)

// Write is one change to one side.
type Write struct {
	Op     Op
	Set    string // the clusterset on the broker; empty: in this cluster
	Object client.Object

	kind *Kind
	news *metav1.Condition // of a Report: new trouble
	// done reports whether the write was carried out.
	done bool
	// rejected reports whether the API server has rejected the object as invalid, as one of
	// an older or newer version does.
	rejected bool
}

func (w Write) String() string {
	where := "here"
	if w.Set != "" {
		where = "on the broker in clusterset " + w.Set
	}
	return fmt.Sprintf("%s %s %s %s", w.Op, w.kind.Name, w.Object.GetName(), where)
}

// Plan returns the writes that make both sides the same, the objects that it refuses
// to copy, an object of a kind that is not in the table among them, and what the cluster should
// remember before it carries out the writes. It writes only to
// clustersets that are known, deletes nothing that an unknown clusterset may hold, and
// deletes what is left of clustersets that the cluster is not in any more only when all
// its clustersets are known.
func Plan(kinds Table, s Snapshot) ([]Write, []Refusal, Memory) {
	slices.SortFunc(s.Sets, func(a, b SetSnapshot) int { return cmp.Compare(a.Name, b.Name) })
	p := newPlan(s)
	local := p.split(kinds, s.Local, true)
	sets := make([][][]client.Object, len(p.Sets))
	for i, set := range p.Sets {
		if set.Known {
			sets[i] = p.split(kinds, set.Objects, false)
		}
	}
	p.judge = newJudge(kinds, p.Snapshot, local, sets)
	for i := range kinds {
		of := kindPlan{plan: p, kind: &kinds[i], local: local[i], sets: slices.Clone(p.Sets)}
		for j := range of.sets {
			of.sets[j].Objects = nil
			if of.sets[j].Known {
				of.sets[j].Objects = sets[j][i]
			}
		}
		if of.kind.Named != nil {
			planNamed(of)
		} else {
			planFree(of)
		}
	}
	if p.judge.memory.changed {
		p.judge.memory.trim()
	}
	return p.writes, p.refused, p.judge.memory
}

type plan struct {
	Snapshot
	judge   *judge
	writes  []Write
	refused []Refusal

	// What is asked for each object or clusterset, of which there may be 1,000, is looked up here.
	in       map[string]bool               // the clustersets of the cluster
	notKnown []string                      // those that are not known
	owners   map[string]map[types.UID]bool // see ownersOf
}

func newPlan(s Snapshot) *plan {
	p := &plan{Snapshot: s, in: map[string]bool{}, owners: map[string]map[types.UID]bool{}}
	for _, set := range s.Sets {
		p.in[set.Name] = true
		p.owners[set.Name] = set.ownersOf(s.ClusterID)
		if !set.Known {
			p.notKnown = append(p.notKnown, set.Name)
		}
	}
	return p
}

// split returns the objects of each kind, and refuses the others.
func (p *plan) split(kinds Table, objects []client.Object, local bool) [][]client.Object {
	byKind, unknown := kinds.split(objects)
	for _, o := range unknown {
		p.refused = append(p.refused, Refusal{
			Kind: reflect.TypeOf(
				o).Elem().Name(),
			Namespace: o.GetNamespace(),
			Name:      o.GetName(),
			Local:     local,
			Reason:    notExchanged,
		})
	}
	return byKind
}

// allKnown reports whether every clusterset of the cluster is known.
func (p *plan) allKnown() bool { return len(p.notKnown) == 0 }

// isIn reports whether the cluster is in a clusterset.
func (p *plan) isIn(set string) bool { return p.in[set] }

// kindPlan is the part of a plan that is about one kind.
type kindPlan struct {
	*plan
	kind  *Kind
	local []client.Object // sorted by name, and so are the objects of sets
	sets  []SetSnapshot
	fresh []signature
}

// refuseVerdict refuses an object on the broker.
func (p *kindPlan) refuseVerdict(o client.Object, v verdict) {
	p.refuse(o, false, "%s", v.reason)
	p.refused[len(p.refused)-1].early = v.early
}

func (p *kindPlan) refuse(o client.Object, local bool, format string, args ...any) {
	maker := ""
	if !local {
		maker = makerOf(o)
	}
	p.refused = append(p.refused, Refusal{
		maker:     maker,
		Kind:      p.kind.Name,
		Namespace: o.GetNamespace(),
		Name:      o.GetName(),
		Local:     local,
		Reason:    fmt.Sprintf(format, args...),
	})
}

// write appends the write that makes have, which may be nil, the same as want.
func (p *kindPlan) write(set string, want, have client.Object) {
	switch {
	case have == nil:
		p.writes = append(p.writes, Write{Op: Create, Set: set, Object: want, kind: p.kind})
	case !p.kind.same(want, have):
		update := have.DeepCopyObject().(client.Object)
		update.SetLabels(want.GetLabels())
		update.SetAnnotations(want.GetAnnotations())
		p.kind.setFields(update, want)
		p.kind.setSets(update, p.kind.setsOf(want))
		p.writes = append(p.writes, Write{Op: Update, Set: set, Object: update, kind: p.kind})
	}
}

func (p *kindPlan) delete(set string, o client.Object) {
	p.writes = append(p.writes, Write{Op: Delete, Set: set, Object: o, kind: p.kind})
}
