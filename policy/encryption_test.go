package policy

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
)

// secured returns a rule that requires encryption.
func secured(r v1alpha1.CablePolicySpec) v1alpha1.CablePolicySpec {
	r.CableOptions = &v1alpha1.CableOptions{Encryption: submarinerv1.EncryptionRequired}
	return r
}

func TestRequiredEncryption(t *testing.T) {
	const vxlan, ipsec = cable.VXLAN, cable.IPsec
	secret := func(c Cluster) Cluster {
		c.MustEncrypt = true
		return c
	}
	plainDefault := made("default", between("", "", vxlan))
	for _, test := range []struct {
		name     string
		policies []*v1alpha1.CablePolicies
		x, y     Cluster
		driver   string
		by, err  string
	}{
		{"nothing requires it", []*v1alpha1.CablePolicies{plainDefault}, east, west, vxlan, "", ""},
		{
			"a cluster",
			[]*v1alpha1.CablePolicies{plainDefault},
			east,
			secret(west),
			"",
			"cluster west",
			"cluster west requires encryption, but cable policy default specifies vxlan, which does not encrypt: the pair gets no cable until a policy specifies a driver that encrypts",
		},
		{
			"both clusters",
			[]*v1alpha1.CablePolicies{plainDefault},
			secret(east),
			secret(west),
			"",
			"cluster east",
			"cluster east requires encryption, but cable policy default specifies vxlan, which does not encrypt: the pair gets no cable until a policy specifies a driver that encrypts",
		},
		{
			"a cluster, no policy",
			nil,
			secret(east),
			west,
			"",
			"cluster east",
			"cluster east requires encryption, but the clusters' own default specifies vxlan, which does not encrypt: the pair gets no cable until a policy specifies a driver that encrypts",
		},
		{
			"a cluster, and it is",
			[]*v1alpha1.CablePolicies{plainDefault, made("a", between("env", "", ipsec))},
			secret(east),
			west,
			ipsec,
			"cluster east",
			"",
		},
		{
			"the rule that decides",
			[]*v1alpha1.CablePolicies{plainDefault, made("a", secured(between("env", "", ipsec)))},
			east,
			west,
			ipsec,
			"cable policy a",
			"",
		},
		{
			"a rule that is beaten",
			[]*v1alpha1.CablePolicies{
				made("a", between("tier", "env=production", vxlan)),
				made("b", between("env=lab", "", vxlan), secured(between("env=production", "", ipsec))),
			},
			east,
			west,
			"",
			"rule 2 of cable policy b",
			"rule 2 of cable policy b requires encryption, but cable policy a specifies vxlan, which does not encrypt: the pair gets no cable until a policy specifies a driver that encrypts",
		},
		{
			"the default, which is beaten",
			[]*v1alpha1.CablePolicies{
				made("a", between("tier", "", vxlan)),
				made("default", secured(between("", "", ipsec))),
			},
			east,
			west,
			"",
			"cable policy default",
			"cable policy default requires encryption, but cable policy a specifies vxlan, which does not encrypt: the pair gets no cable until a policy specifies a driver that encrypts",
		},
		{
			"a rule with an unknown driver",
			[]*v1alpha1.CablePolicies{
				made("a", between("tier", "env=production", vxlan)),
				made("b", secured(between("", "", "gre"))),
			},
			east,
			west,
			"",
			"cable policy b",
			"cable policy b requires encryption, but cable policy a specifies vxlan, which does not encrypt: the pair gets no cable until a policy specifies a driver that encrypts",
		},
		{
			"an invalid rule of low precedence",
			[]*v1alpha1.CablePolicies{
				made("a", between("tier", "env=production", vxlan)),
				made("b", secured(garbled(between("", "", ipsec)))),
			},
			east,
			west,
			"",
			"cable policy b",
			"cable policy b requires encryption, but cable policy a specifies vxlan, which does not encrypt: the pair gets no cable until a policy specifies a driver that encrypts",
		},
		{
			"a rule that contradicts itself",
			[]*v1alpha1.CablePolicies{made("a", secured(between("", "", vxlan)))},
			east,
			west,
			"",
			"cable policy a",
			"cable policy a requires encryption, but cable policy a specifies vxlan, which does not encrypt: the pair gets no cable until a policy specifies a driver that encrypts",
		},
		{
			"a rule about others",
			[]*v1alpha1.CablePolicies{made("a", secured(between("env=lab", "", ipsec)))},
			east,
			west,
			vxlan,
			"",
			"",
		},
		{
			"a rule of another clusterset",
			[]*v1alpha1.CablePolicies{inSets(made("a", secured(between("", "", ipsec))), "blue")},
			east,
			west,
			vxlan,
			"",
			"",
		},
		{
			"a value of a newer version",
			[]*v1alpha1.CablePolicies{
				with(made("a", secured(between("", "", ipsec))),
					func(p *v1alpha1.CablePolicies) { p.ConnectionPolicies[0].CableOptions.Encryption = "quantum" }),
			},
			east,
			west,
			ipsec,
			"cable policy a",
			"",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := compile(test.policies, brokers, known)
			for _, d := range []Decision{b.Decide(test.x, test.y), b.Decide(test.y, test.x)} {
				require.Equal(t, test.err, text(d.Err))
				require.Equal(t, test.driver, d.Driver)
				require.Equal(t, test.by, d.MustEncrypt)
			}
		})
	}
	require.EqualError(t, check(made("a", secured(between("", "", vxlan))), known),
		"spec[0].options.encryption: encryption is required, but vxlan does not encrypt: choose another driver")
	unknown := secured(between("", "", ipsec))
	unknown.CableOptions.Encryption = "maybe"
	require.EqualError(t, check(made("a", unknown), known),
		`spec[0].options.encryption: "maybe" is not a value: use required, or omit it`)
	require.NoError(t, check(made("a", secured(between("", "", ipsec))), known))
}

// A pair that must be encrypted never gets a driver that does not encrypt, whatever the other
// policies are; other pairs, and encrypted ones, get the same cable as without requirements.
func TestRequiredPairsAreNeverPlain(t *testing.T) {
	barred := 0
	kept := 0
	free := 0
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 3))
		var clusters, lax []Cluster
		for i := range 6 {
			c := randomCluster(r, i)
			lax = append(lax, c)
			c.MustEncrypt = r.IntN(6) == 0
			clusters = append(clusters, c)
		}
		var policies, laxPolicies []*v1alpha1.CablePolicies
		for i := range r.IntN(8) {
			p := randomPolicy(r, i)
			laxPolicies = append(laxPolicies, p)
			p = p.DeepCopy()
			for j := range p.ConnectionPolicies {
				if r.IntN(5) == 0 {
					p.ConnectionPolicies[j] = secured(p.ConnectionPolicies[j])
				}
			}
			policies = append(policies, p)
		}
		book := compile(policies, brokers, known)
		without := compile(laxPolicies, brokers, known)
		for i, x := range clusters {
			for j, y := range clusters[:i] {
				if !common(x.Sets, y.Sets) {
					continue
				}
				is := book.Decide(x, y)
				was := without.Decide(lax[i], lax[j])
				must := x.MustEncrypt || y.MustEncrypt ||
					slices.ContainsFunc(policies,
						func(p *v1alpha1.CablePolicies) bool { return requiresPlainly(p, x, y) })
				require.Equal(t, must, is.MustEncrypt != "", "seed %d: %s, %s", seed, x.ID, y.ID)
				switch {
				case must && was.Err == nil && SecrecyOf(was.Driver) == Plain:
					require.Empty(t, is.Driver, "seed %d: %s, %s", seed, x.ID, y.ID)
					require.ErrorAs(t, is.Err, new(clearText))
					require.Equal(t, was.Policy, is.Policy)
					barred++
				case must:
					kept++
					require.True(t, is.Same(was))
				default:
					free++
					require.True(t, is.Same(was))
				}
			}
		}
	}
	require.Greater(t, min(barred, kept, free), 200, "the cases are too tame")
}

// requiresPlainly reports whether a rule of p that requires encryption matches a pair, by the
// selectors of Kubernetes.
func requiresPlainly(p *v1alpha1.CablePolicies, x, y Cluster) bool {
	return slices.ContainsFunc(p.ConnectionPolicies, func(spec v1alpha1.CablePolicySpec) bool {
		left, _ := understood(spec.LeftClusterSelector)
		right, _ := understood(spec.RightClusterSelector)
		matches := left.Matches(labelsOf(x)) && right.Matches(labelsOf(y)) ||
			left.Matches(labelsOf(y)) && right.Matches(labelsOf(x))
		in := func(s string) bool { return slices.Contains(x.Sets, s) && slices.Contains(y.Sets, s) }
		return spec.RequiresEncryption() && matches && slices.ContainsFunc(p.ClusterSets(), in)
	})
}
