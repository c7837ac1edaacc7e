package policy

import (
	"cmp"
	"iter"
	"maps"
	"math/bits"
	"slices"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
	"subctl/cable/drivers"
)

// Book is a compiled set of policies. Its rules are in order of precedence, so that the
// first one that matches a pair decides.
//
// A cluster's labels are looked up in an index from labels to the requirements that they
// meet or violate. The result has one bit for the left selector and one for the right
// selector of each rule. Matching a pair then takes four words for every 64 rules. A
// Book is immutable, and safe for concurrent use.
type Book struct {
	rules []*rule
	// met is the number of labels that each selector requires. Selector 2i is the left
	// selector of rule i, and 2i+1 its right selector.
	met []int
	// always are the selectors that require no label. A label may still violate them.
	always sides
	// index maps labels to the selectors that they affect. The value anyValue stands for
	// every value of the key.
	index map[label][]effect
	// sets maps clustersets to their rules.
	sets map[string]bitset
	// secure are the rules that require encryption; nil if there are none.
	secure bitset
	// digest is Digest of the policies.
	digest string
}

type label struct{ key, value string }

// anyValue is not a valid label value.
const anyValue = "*"

// effect is the effect of a label on a selector: it meets or violates a requirement.
type effect struct {
	selector int
	breaks   bool
}

// bitset has a bit for each rule.
type bitset []uint64

func newBitset(rules int) bitset { return make(bitset, (rules+63)/64) }

func (s bitset) set(rule int)   { s[rule/64] |= 1 << (rule % 64) }
func (s bitset) clear(rule int) { s[rule/64] &^= 1 << (rule % 64) }

// sides holds the bits of the rules' left and right selectors.
type sides [2]bitset

func (s sides) set(selector int)   { s[selector%2].set(selector / 2) }
func (s sides) clear(selector int) { s[selector%2].clear(selector / 2) }

// Compile returns the Book of policies. Invalid policies are handled as the package comment
// describes.
func Compile(policies []*v1alpha1.CablePolicies, makers Makers) *Book {
	return compile(policies, makers, drivers.All())
}

func compile(policies []*v1alpha1.CablePolicies, makers Makers, known []cable.Driver) *Book {
	b := &Book{index: map[label][]effect{}, sets: map[string]bitset{}, digest: Digest(policies)}
	for _, p := range policies {
		if len(p.ClusterSets()) == 0 {
			continue // the broker does not have it
		}
		maker := submarinerv1.MakerOf(p, makers.Here)
		if makers.BrokerOnly && maker != submarinerv1.BrokerID {
			continue
		}
		rules := p.InForce()
		for i := range rules {
			r, _ := readRule(p, rules, i, known)
			r.maker = maker
			b.rules = append(b.rules, r)
		}
	}
	slices.SortStableFunc(b.rules, (*rule).compare)
	n := len(b.rules)
	b.met = make([]int, 2*n)
	b.always = sides{newBitset(n), newBitset(n)}
	for i, r := range b.rules {
		b.add(2*i, r.left)
		b.add(2*i+1, r.right)
		if r.spec.RequiresEncryption() {
			if b.secure == nil {
				b.secure = newBitset(n)
			}
			b.secure.set(i)
		}
		for _, set := range r.sets {
			if b.sets[set] == nil {
				b.sets[set] = newBitset(n)
			}
			b.sets[set].set(i)
		}
	}
	return b
}

// Digest returns Digest of the policies.
func (b *Book) Digest() string { return b.digest }

// add indexes a selector's requirements.
func (b *Book) add(selector int, requirements []requirement) {
	for _, q := range requirements {
		if !q.not {
			b.met[selector]++
		}
		for _, v := range q.values {
			l := label{q.key, v}
			b.index[l] = append(b.index[l], effect{selector, q.not})
		}
	}
	if b.met[selector] == 0 {
		b.always.set(selector)
	}
}

// matches holds the rules of a Book whose left or right selector selects a cluster.
type matches struct {
	Cluster
	left, right bitset
}

// match returns the matches of a cluster.
func (b *Book) match(c Cluster) matches {
	hit := sides{slices.Clone(b.always[0]), slices.Clone(b.always[1])}
	met := make([]int32, len(b.met))
	broken := []int{}
	apply := func(l label) {
		for _, e := range b.index[l] {
			switch need := b.met[e.selector]; {
			case e.breaks:
				broken = append(broken, e.selector)
			case need == 1:
				hit.set(e.selector)
			default:
				if met[e.selector]++; int(met[e.selector]) == need {
					hit.set(e.selector)
				}
			}
		}
	}
	for k, v := range c.Labels {
		if k != submarinerv1.ClusterIDLabel {
			apply(label{k, v})
			apply(label{k, anyValue})
		}
	}
	// For policies, every cluster has its ID as a label, although only copies of its
	// Cluster object do.
	apply(label{submarinerv1.ClusterIDLabel, c.ID})
	apply(label{submarinerv1.ClusterIDLabel, anyValue})
	for _, selector := range broken {
		hit.clear(selector)
	}
	in := newBitset(len(b.rules))
	for _, set := range c.Sets {
		for w, bits := range b.sets[set] {
			in[w] |= bits
		}
	}
	for w := range in {
		hit[0][w] &= in[w]
		hit[1][w] &= in[w]
	}
	return matches{c, hit[0], hit[1]}
}

// matching yields the rules that match a pair, in order of precedence.
func (b *Book) matching(x, y matches) iter.Seq[*rule] {
	return func(yield func(*rule) bool) {
		for w := range x.left {
			for hit := x.left[w]&y.right[w] | x.right[w]&y.left[w]; hit != 0; hit &= hit - 1 {
				r := b.rules[w*64+bits.TrailingZeros64(hit)]
				if r.counts(x.Sets, y.Sets) && !yield(r) {
					return
				}
			}
		}
	}
}

// Pair is two clusters, the lower ID first.
type Pair struct{ X, Y Cluster }

func (p Pair) String() string { return p.X.ID + " - " + p.Y.ID }

// Pairs yields every pair of clusters that have a clusterset in common, with its decision,
// sorted by cluster ID.
func (b *Book) Pairs(clusters []Cluster) iter.Seq2[Pair, Decision] {
	return func(yield func(Pair, Decision) bool) {
		all := make([]matches, len(clusters))
		for i, c := range clusters {
			all[i] = b.match(c)
		}
		slices.SortFunc(all, func(x, y matches) int { return cmp.Compare(x.ID, y.ID) })
		for i, x := range all {
			for _, y := range all[i+1:] {
				if common(x.Sets, y.Sets) && !yield(Pair{x.Cluster, y.Cluster}, b.decide(x, y)) {
					return
				}
			}
		}
	}
}

// common reports whether two short lists have an entry in common.
func common(a, b []string) bool {
	return slices.ContainsFunc(a, func(s string) bool { return slices.Contains(b, s) })
}

func equal(a, b cable.Config) bool { return maps.Equal(a, b) }
