package policy

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
)

// TestEveryPair makes clusters, labels and policies at random, few enough of each that
// they often have to do with each other. Both ends of every pair must come to the same
// cable, whatever the order of what they read, and to that of the rules in plain words.
func TestEveryPair(t *testing.T) {
	decided := map[string]int{}
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 1))
		var clusters []Cluster
		for i := range 6 {
			clusters = append(clusters, randomCluster(r, i))
		}
		var policies []*v1alpha1.CablePolicies
		for i := range r.IntN(12) {
			policies = append(policies, randomPolicy(r, i))
		}
		shuffled := slices.Clone(policies)
		r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		here := compile(policies, brokers, known)
		there := compile(shuffled, brokers, known)
		pairs := 0
		for i, x := range clusters {
			for _, y := range clusters[i+1:] {
				if common(x.Sets, y.Sets) {
					pairs++
				}
			}
		}
		for pair, d := range here.Pairs(clusters) {
			pairs--
			require.Less(t, pair.X.ID, pair.Y.ID)
			for _, other := range []Decision{
				here.Decide(pair.X, pair.Y),
				here.Decide(pair.Y, pair.X),
				there.Decide(pair.X, pair.Y),
				here.Explain(pair.Y, pair.X).Decision,
			} {
				require.Equal(t, d.Policy, other.Policy)
				require.True(t, d.Same(other), "%+v and %+v", d, other)
			}
			want := plainly(policies, pair.X, pair.Y)
			require.Equal(t, want, plain(d), "seed %d, %s and %s", seed, pair.X.ID, pair.Y.ID)
			decided[kindOf(d)]++
		}
		require.Zero(t, pairs)
	}
	for _, kind := range []string{"policy", "default", "none", "error", "withheld"} {
		require.Greater(t, decided[kind], 20, "%v: the cases are too tame", decided)
	}
}

// Select and Kubernetes select the same clusters.
func TestSelect(t *testing.T) {
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 2))
		var clusters []Cluster
		for i := range 6 {
			clusters = append(clusters, randomCluster(r, i))
		}
		s := randomSelector(r)
		theirs, mistaken := understood(s)
		var want []string
		for _, c := range clusters {
			if !mistaken && theirs.Matches(labelsOf(c)) {
				want = append(want, c.ID)
			}
		}
		require.Equal(t, want, Select(s, clusters), "seed %d: %s", seed, SelectorText(s))
	}
}

func kindOf(d Decision) string {
	isWithheld := errors.As(d.Err, new(withheld))
	switch {
	case isWithheld:
		return "withheld"
	case d.Err != nil:
		return "error"
	case d.Policy == "":
		return "none"
	case d.Policy == "default":
		return "default"
	}
	return "policy"
}

func plain(d Decision) string {
	if d.Err != nil {
		return "none, because of " + d.Policy
	}
	return d.Driver + ", because of " + d.Policy
}

// plainly is the package comment, word for word, with the selectors of Kubernetes.
func plainly(policies []*v1alpha1.CablePolicies, x, y Cluster) string {
	if !common(x.Sets, y.Sets) {
		return "none, because of "
	}
	type candidate struct {
		name         string
		index, count int
		spec         v1alpha1.CablePolicySpec
		mistake      bool
	}
	var all []candidate
	for _, p := range policies {
		if !slices.ContainsFunc(p.ClusterSets(),
			func(s string) bool { return slices.Contains(x.Sets, s) && slices.Contains(y.Sets, s) }) {
			continue
		}
		for i, spec := range p.ConnectionPolicies {
			left, leftBad := understood(spec.LeftClusterSelector)
			right, rightBad := understood(spec.RightClusterSelector)
			if left.Matches(labelsOf(x)) && right.Matches(labelsOf(y)) ||
				left.Matches(labelsOf(y)) && right.Matches(labelsOf(x)) {
				all = append(
					all,
					candidate{
						p.Name,
						i,
						requirements(spec.LeftClusterSelector) + requirements(spec.RightClusterSelector),
						spec,
						leftBad || rightBad,
					},
				)
			}
		}
	}
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(btoi(a.name == "default"), btoi(b.name == "default")), cmp.Compare(b.count, a.count),
			cmp.Compare(a.name, b.name), cmp.Compare(a.index, b.index))
	})
	wary := ""
	result := func(driver, policy string) string {
		if wary != "" && driver == cable.VXLAN {
			return "none, because of " + wary
		}
		return driver + ", because of " + policy
	}
	for _, c := range all {
		driver := cable.Canonical(c.spec.CableDriver)
		switch {
		case c.mistake && driver != cable.VXLAN && wary == "":
			wary = c.name
		case c.mistake:
		case driver == "gre":
			return "none, because of " + c.name
		default:
			return result(driver, c.name)
		}
	}
	if x.Driver != y.Driver {
		return "none, because of "
	}
	return result(x.Driver, "")
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func labelsOf(c Cluster) labels.Set {
	all := labels.Set{submarinerv1.ClusterIDLabel: c.ID}
	maps.Copy(all, c.Labels)
	return all
}

// understood returns what Kubernetes understands of a selector, and whether there is
// more.
func understood(s v1alpha1.ClusterSelector) (labels.Selector, bool) {
	good := v1alpha1.ClusterSelector{MatchLabels: s.MatchLabels}
	for _, e := range s.MatchExpressions {
		if e.Operator != "Equals" {
			good.MatchExpressions = append(good.MatchExpressions, e)
		}
	}
	selector, err := kubernetes(good)
	if err != nil {
		panic(err)
	}
	return selector, len(good.MatchExpressions) < len(s.MatchExpressions)
}

// kubernetes is a selector as Kubernetes has it.
func kubernetes(s v1alpha1.ClusterSelector) (labels.Selector, error) {
	out := metav1.LabelSelector{MatchLabels: s.MatchLabels}
	for _, e := range s.MatchExpressions {
		out.MatchExpressions = append(out.MatchExpressions, metav1.LabelSelectorRequirement(e))
	}
	return metav1.LabelSelectorAsSelector(&out)
}

var (
	someKeys   = []string{"env", "tier", "site", submarinerv1.ClusterIDLabel}
	someValues = []string{"a", "b", "c0", "c1", ""}
	someSets   = []string{"blue", "default", "red"}
)

func pick(r *rand.Rand, from []string) string { return from[r.IntN(len(from))] }

func randomSets(r *rand.Rand, empty bool) []string {
	var out []string
	for _, s := range someSets {
		if r.IntN(2) == 0 {
			out = append(out, s)
		}
	}
	if len(out) == 0 && !empty {
		return []string{"default"}
	}
	return out
}

func randomCluster(r *rand.Rand, i int) Cluster {
	c := Cluster{
		ID:     fmt.Sprintf("c%d", i),
		Labels: map[string]string{},
		Sets:   randomSets(r, false),
		Driver: pick(r, []string{"vxlan", "vxlan", "ipsec"}),
	}
	for _, k := range someKeys[:3] {
		if r.IntN(3) > 0 {
			c.Labels[k] = pick(r, someValues)
		}
	}
	return c
}

func randomPolicy(r *rand.Rand, i int) *v1alpha1.CablePolicies {
	p := made(fmt.Sprintf("p%d", i))
	if i == 0 {
		p.Name = v1alpha1.DefaultCablePolicy
	}
	p.Status.ClusterSets = randomSets(r, true)
	for range 1 + r.IntN(2) {
		p.ConnectionPolicies = append(p.ConnectionPolicies, v1alpha1.CablePolicySpec{
			LeftClusterSelector: randomSelector(r), RightClusterSelector: randomSelector(r),
			CableDriver: pick(r, []string{"vxlan", "wireguard", "ipsec", "libreswan", "gre"}),
		})
	}
	return p
}

func randomSelector(r *rand.Rand) v1alpha1.ClusterSelector {
	s := v1alpha1.ClusterSelector{}
	for range r.IntN(3) {
		e := v1alpha1.ClusterRequirement{Key: pick(r, someKeys)}
		switch r.IntN(8) {
		case 0:
			e.Operator = metav1.LabelSelectorOpExists
		case 1:
			e.Operator = metav1.LabelSelectorOpDoesNotExist
		case 2, 3:
			e.Operator = metav1.LabelSelectorOpNotIn
			e.Values = []string{pick(r, someValues)}
		case 4:
			e.Operator = metav1.LabelSelectorOpIn
			e.Values = []string{
				pick(r, someValues),
				pick(r, someValues),
				pick(r, someValues),
			}
		case 5:
			e.Operator = "Equals"
		default:
			if s.MatchLabels == nil {
				s.MatchLabels = map[string]string{}
			}
			s.MatchLabels[e.Key] = pick(r, someValues)
			continue
		}
		s.MatchExpressions = append(s.MatchExpressions, e)
	}
	return s
}
