package exchange_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker/brokertest"
	"subctl/broker/exchange"
)

// Whatever a broker shows of honest members, the copies are versions that their owners signed, and
// never older than a version that was here before. Of a cluster that has left there are none until
// it has joined again.
func TestHostileBrokerWalk(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for run := range 60 {
		t.Run(fmt.Sprint(run), func(t *testing.T) {
			v := newVictim(t)
			signed := map[string][]client.Object{} // every version ever, by kind and name
			seen := map[string]int64{}             // the newest version that was here
			grants := map[string]int64{}           // the serial of the newest grant of each cluster
			granted := map[string]int64{}          // the newest of these that was shown to the victim
			left := map[string]int64{}             // the newest of these that was shown to be void
			for step := range 25 {
				now := int64(1000 + step*10)
				for range r.IntN(3) {
					o := honest(r, now)
					signed[id(o)] = append(signed[id(o)], o)
				}
				if owner := owners[r.IntN(2)]; r.IntN(5) == 0 {
					before := grantAt(owner, grants[owner])
					grants[owner] = now
					for _, o := range []client.Object{leftWith(owner, before), grantAt(owner, now)} {
						signed[id(o)] = append(signed[id(o)], o)
					}
				}
				sets := []exchange.SetSnapshot{shown(r, "default", signed), shown(r, "lab", signed)}
				for _, o := range slices.Concat(sets[0].Objects, sets[1].Objects) {
					if l, err := brokertest.Administrator().Public().Leaving(
						o.GetAnnotations()[submarinerv1.LeavingAnnotation]); err == nil {
						left[l.Grant.Cluster] = max(left[l.Grant.Cluster], l.Grant.Serial)
					}
					if g, err := brokertest.Administrator().Public().Grant(
						o.GetAnnotations()[submarinerv1.GrantAnnotation]); err == nil {
						granted[g.Cluster] = max(granted[g.Cluster], g.Serial)
					}
				}
				v.sync(sets...)
				for name, have := range v.local {
					owner := have.GetLabels()[submarinerv1.ClusterIDLabel]
					require.Greater(t, granted[owner], left[owner], "%s is of a cluster that has left", name)
					kind, copied, _ := strings.Cut(name, "/")
					shared, _, _ := strings.Cut(copied, ".")
					version := versionOf(have, signed[kind+"/"+shared])
					require.NotNil(t, version, "%s was never signed so", name)
					s, err := exchange.Kinds().Verify(version,
						brokertest.KeyOf(version.GetLabels()[submarinerv1.ClusterIDLabel]).Public())
					require.NoError(t, err)
					require.GreaterOrEqual(t, s.Sequence, seen[name], "%s is older than before", name)
					seen[name] = s.Sequence
				}
			}
		})
	}
}

// owners are the honest members.
var owners = []string{"west", "north"}

// grantAt returns the Cluster of a member as it is published after it was granted membership.
func grantAt(owner string, serial int64) *submarinerv1.Cluster {
	serial = max(serial, brokertest.Sequence)
	c := at(serial, cluster("x", owner), func(c *submarinerv1.Cluster) { c.Labels["granted"] = fmt.Sprint(serial) })
	g := brokertest.Grant(owner)
	g.Serial = serial
	brokertest.Annotate(c, submarinerv1.GrantAnnotation, brokertest.Granted(g))
	return c
}

// leftWith returns the Cluster of a member that has left with the grant of another one.
func leftWith(owner string, before *submarinerv1.Cluster) *submarinerv1.Cluster {
	token, err := brokertest.Key(owner).SignLeaving(before.Annotations[submarinerv1.GrantAnnotation], 1)
	if err != nil {
		panic(err)
	}
	return exchange.Left("x", owner, token)
}

// honest returns a version of an object that a member signs.
func honest(r *rand.Rand, sequence int64) client.Object {
	owner := owners[r.IntN(2)]
	text := fmt.Sprint(sequence)
	switch r.IntN(4) {
	case 0:
		return at(sequence, brokertest.Policy("x", owner, "p-"+owner), func(p *v1alpha1.CablePolicies) {
			p.ConnectionPolicies[0].LeftClusterSelector.MatchLabels = map[string]string{"version": text}
		})
	case 1:
		return at(sequence, endpoint("x", owner, "10-0-0-1"), func(e *submarinerv1.Endpoint) { e.Spec.Hostname = text })
	default:
		return at(sequence, cluster("x", owner), func(c *submarinerv1.Cluster) { c.Labels["version"] = text })
	}
}

// shown returns what a hostile broker shows: any version of any object, or none, altered or not.
func shown(r *rand.Rand, set string, signed map[string][]client.Object) exchange.SetSnapshot {
	out := unsigned(set)
	for _, versions := range signed {
		if r.IntN(6) == 0 {
			continue
		}
		o := versions[r.IntN(len(versions))].DeepCopyObject().(client.Object)
		other := versions[r.IntN(len(versions))]
		switch r.IntN(8) {
		case 0: // the signature of another version
			brokertest.Annotate(o, submarinerv1.SignatureAnnotation,
				other.GetAnnotations()[submarinerv1.SignatureAnnotation])
		case 1:
			forge(o, "broker")
		case 2:
			o.SetLabels(map[string]string{submarinerv1.ClusterIDLabel: "north"})
		case 3:
			o.SetAnnotations(nil)
		}
		out.Objects = append(out.Objects, o)
	}
	return out
}

// versionOf returns the version of which have is a copy; nil if it is of none.
func versionOf(have client.Object, versions []client.Object) client.Object {
	for _, o := range versions {
		const signature = submarinerv1.SignatureAnnotation
		if o.GetAnnotations()[signature] != have.GetAnnotations()[signature] {
			continue
		}
		if stated(have) == stated(o) {
			return o
		}
	}
	return nil
}

// stated returns what an object states, as text.
func stated(o client.Object) string {
	switch o := o.(type) {
	case *submarinerv1.Cluster:
		spec := o.Spec
		spec.ClusterSets = nil // the owner does not state them
		return fmt.Sprint(o.Labels, spec)
	case *submarinerv1.Endpoint:
		return fmt.Sprint(o.Labels, o.Spec)
	}
	return fmt.Sprint(o.GetLabels()[submarinerv1.ClusterIDLabel], o.(*v1alpha1.CablePolicies).ConnectionPolicies)
}
