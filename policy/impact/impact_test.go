package impact_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/policy"
	"subctl/policy/catalog"
	"subctl/policy/catalogtest"
	"subctl/policy/impact"
)

var (
	made   = catalogtest.Made
	copied = catalogtest.Copied
	member = catalogtest.Member
)

// written writes a change as a person would: what pairs lose begins with "loses".
func written(c impact.Change) string {
	var out []string
	for _, x := range c.Cables {
		var marks string
		for mark, is := range []bool{x.New, x.Ended, x.Loses()} {
			if is {
				marks += []string{"new, ", "ended, ", "loses, "}[mark]
			}
		}
		out = append(out, fmt.Sprintf("%s%s: %s → %s", marks, x.Pair, x.Now, x.Then))
	}
	for _, m := range c.Moves {
		out = append(out, m.String())
	}
	out = append(out, c.Warnings()...)
	for _, id := range c.Alone {
		out = append(out, "alone: "+id)
	}
	return strings.Join(out, "\n")
}

// TestImpact is the table of what changes mean, in the order of the commands that make them.
func TestImpact(t *testing.T) {
	fallback := copied(submarinerv1.BrokerID, made("default", " |  | vxlan"))
	secure := copied(submarinerv1.BrokerID, made("default", " |  | wireguard"))
	encryption := func(driver string) *v1alpha1.CablePolicies {
		p := made("a", "site=one | site=two | "+driver)
		rule := made("", " |  | ipsec").ConnectionPolicies[0]
		rule.CableOptions = &v1alpha1.CableOptions{Encryption: submarinerv1.EncryptionRequired}
		p.ConnectionPolicies = append(p.ConnectionPolicies, rule)
		return p
	}
	invalid := func(driver string) *v1alpha1.CablePolicies {
		p := made("a", "site=one | site=two | "+driver)
		p.ConnectionPolicies[0].RightClusterSelector = v1alpha1.ClusterSelector{
			MatchLabels: map[string]string{"-": "is not a label"},
		}
		return p
	}
	pair := func(driver string) *v1alpha1.CablePolicies { return made("a", "site=one | site=two | "+driver) }
	policies := func(list ...*v1alpha1.CablePolicies) []*v1alpha1.CablePolicies { return list }
	add := func(p *v1alpha1.CablePolicies) func(*catalog.Catalog) *catalog.Catalog {
		return func(c *catalog.Catalog) *catalog.Catalog { return c.With(policies(p)) }
	}
	others := func(is *catalog.Catalog) func(*catalog.Catalog) *catalog.Catalog {
		return func(*catalog.Catalog) *catalog.Catalog { return is }
	}
	label := func(labels string) func(*catalog.Catalog) *catalog.Catalog {
		return func(c *catalog.Catalog) *catalog.Catalog {
			return c.Labelled("west", submarinerv1.ParseLabels(labels))
		}
	}
	sets := func(id string, sets ...string) func(*catalog.Catalog) *catalog.Catalog {
		return func(c *catalog.Catalog) *catalog.Catalog { return c.InSets(id, sets) }
	}
	leave := func(id string) func(*catalog.Catalog) *catalog.Catalog {
		return func(c *catalog.Catalog) *catalog.Catalog { return c.WithoutCluster(id) }
	}
	// west joins again with a driver, and offers none but these
	join := func(driver string, offers ...string) func(*catalog.Catalog) *catalog.Catalog {
		return func(c *catalog.Catalog) *catalog.Catalog {
			west, _ := c.Cluster("west")
			west.Driver = driver
			return c.Joining(west, func(driver string) error {
				if slices.Contains(offers, driver) {
					return nil
				}
				return fmt.Errorf("this cluster does not offer %s", driver)
			})
		}
	}
	for _, test := range []struct {
		name   string
		was    []*v1alpha1.CablePolicies
		change func(*catalog.Catalog) *catalog.Catalog
		want   string
	}{
		{
			name:   "cable-policy add: it matches no pair",
			was:    policies(fallback),
			change: add(made("a", "site=mars |  | ipsec")),
		},
		{
			name:   "cable-policy add: it matches one pair",
			was:    policies(fallback),
			change: add(pair("wireguard")),
			want: "east - west: vxlan (default) → wireguard (a)\n" +
				"1 pair: a decides instead of default",
		},
		{
			name:   "cable-policy add: a driver that is not offered",
			was:    policies(fallback),
			change: add(pair("ipsec")),
			want: "loses, east - west: vxlan (default) → none: cluster west does not offer ipsec\n" +
				"1 pair: a decides instead of default",
		},
		{
			name:   "cable-policy add: the same cable by another policy",
			was:    policies(fallback),
			change: add(pair("vxlan")),
			want:   "1 pair: a decides instead of default",
		},
		{
			name:   "cable-policy add: settings alone",
			was:    policies(pair("vxlan")),
			change: add(pair("vxlan | mtu: 1300")),
			want:   "east - west: vxlan (a) → vxlan, mtu: 1300 (a)",
		},
		{
			name:   "cable-policy add: settings with a mistake",
			was:    policies(pair("vxlan")),
			change: add(pair("vxlan | mtu: 1")),
			want: "loses, east - west: vxlan (a) → none: settings of cable policy a: line 1: mtu \"1\": it must be " +
				"a whole number from 576 to 65535",
		},
		{
			name:   "cable-policy add: nothing is left for another policy",
			was:    policies(fallback, made("b", "site=one | site=two | vxlan")),
			change: add(made("a", "site=one | site | vxlan")),
			want: "1 pair: a decides instead of b\n" +
				"1 pair: a decides instead of default\n" +
				"policy b decides no pair any more",
		},
		{
			name:   "cable-policy add: a shadow without a cluster",
			was:    policies(made("b", "site=mars | tier,env in (x,y) | vxlan")),
			change: add(made("a", "env in (y,x),tier | site=mars | vxlan")),
			want:   "cable policy b never decides: a has the same selectors and takes precedence",
		},
		{
			name:   "cable-policy add: a rule that is in a shadow itself",
			was:    policies(made("b", "site=mars |  | vxlan")),
			change: add(made("c", "site=venus |  | vxlan", " | site=mars | ipsec")),
			want:   "rule 2 of cable policy c never decides: b has the same selectors and takes precedence",
		},
		{
			name:   "cable-policy add: a shadow that there was before",
			was:    policies(made("a", "site=mars |  | vxlan"), made("b", "site=mars |  | vxlan")),
			change: add(made("c", "site=venus |  | vxlan")),
		},
		{
			name:   "cable-policy add: no encryption any more",
			was:    policies(fallback, pair("wireguard")),
			change: add(pair("vxlan")),
			want:   "loses, east - west: wireguard (a) → vxlan (a)",
		},
		{
			name:   "cable-policy add: no cable any more",
			was:    policies(fallback, pair("wireguard")),
			change: add(pair("ipsec")),
			want:   "loses, east - west: wireguard (a) → none: cluster west does not offer ipsec",
		},
		{
			name:   "cable-policy add: no cable before and after",
			was:    policies(fallback, pair("ipsec")),
			change: add(pair("vxlan+ipsec")),
			want: "east - west: none: cluster west does not offer ipsec → none: cluster east does not offer " +
				"vxlan+ipsec, cluster west does not offer vxlan+ipsec",
		},
		{
			name:   "cable-policy add: a cable at last",
			was:    policies(fallback, pair("ipsec")),
			change: add(pair("wireguard")),
			want:   "east - west: none: cluster west does not offer ipsec → wireguard (a)",
		},
		{
			name:   "cable-policy add: a cable at last, without the encryption that it should have had",
			was:    policies(fallback, pair("ipsec")),
			change: add(pair("vxlan")),
			want:   "loses, east - west: none: cluster west does not offer ipsec → vxlan (a)",
		},
		{
			name:   "cable-policy add: no cable rather than clear text, until now",
			was:    policies(fallback, encryption("vxlan")),
			change: add(pair("vxlan")),
			want: "loses, cloud - east: ipsec (a) → vxlan (default)\n" +
				"loses, cloud - west: none: cluster west does not offer ipsec → vxlan (default)\n" +
				"loses, east - west: none: rule 2 of cable policy a requires encryption, but rule 1 of " +
				"cable policy a specifies vxlan, which does not encrypt: the pair gets no cable until a policy " +
				"specifies a driver that encrypts → vxlan (a)\n" +
				"2 pairs: default decides instead of a",
		},
		{
			name:   "cable-policy add: no cable rather than clear text, and then encrypted",
			was:    policies(fallback, encryption("vxlan")),
			change: add(pair("wireguard")),
			want: "loses, cloud - east: ipsec (a) → vxlan (default)\n" +
				"loses, cloud - west: none: cluster west does not offer ipsec → vxlan (default)\n" +
				"east - west: none: rule 2 of cable policy a requires encryption, but rule 1 of cable " +
				"policy a specifies vxlan, which does not encrypt: the pair gets no cable until a policy " +
				"specifies a driver that encrypts → wireguard (a)\n" +
				"2 pairs: default decides instead of a",
		},
		{
			name:   "cable-policy add: no cable, as an invalid policy may require encryption",
			was:    policies(fallback, invalid("ipsec")),
			change: add(pair("vxlan")),
			want: "loses, cloud - west: none: cable policy a specifies ipsec and may match this pair, but is " +
				"invalid: spec[0].rightClusterSelector.matchLabels: \"-\" is not a label key: use letters, " +
				"digits, '-', '_' and '.', optionally after a DNS name and '/': until it is corrected, the pair " +
				"gets no vxlan cable, which is not encrypted → vxlan (default)\n" +
				"loses, east - west: none: cable policy a specifies ipsec and may match this pair, but " +
				"is invalid: spec[0].rightClusterSelector.matchLabels: \"-\" is not a label key: use letters, " +
				"digits, '-', '_' and '.', optionally after a DNS name and '/': until it is corrected, the pair " +
				"gets no vxlan cable, which is not encrypted → vxlan (a)\n" +
				"1 pair: default decides instead of a",
		},
		{
			name:   "cable-policy add: a third party removes no encryption",
			was:    policies(secure),
			change: add(made("a", "!x |  | vxlan")),
			want: "loses, cloud - west: wireguard (default) → vxlan (a)\n" +
				"loses, east - west: wireguard (default) → vxlan (a)\n" +
				"2 pairs: a decides instead of default",
		},
		{
			name:   "cable-policy adopt: the broker does",
			was:    policies(secure),
			change: others(member(secure, copied(submarinerv1.BrokerID, made("a", "!x |  | vxlan")))),
			want: "loses, cloud - east: wireguard (default) → vxlan (a)\n" +
				"loses, cloud - west: wireguard (default) → vxlan (a)\n" +
				"loses, east - west: wireguard (default) → vxlan (a)\n" +
				"3 pairs: a decides instead of default\n" +
				"policy default decides no pair any more",
		},
		{
			name:   "cable-policy delete",
			was:    policies(fallback, made("a", "site=one |  | wireguard")),
			change: func(c *catalog.Catalog) *catalog.Catalog { return c.Without(c.Policies[0]) },
			want: "loses, cloud - west: wireguard (a) → vxlan (default)\n" +
				"loses, east - west: wireguard (a) → vxlan (default)\n" +
				"2 pairs: default decides instead of a",
		},
		{
			name:   "deploy-broker: a driver of another version may encrypt",
			was:    policies(copied(submarinerv1.BrokerID, made("default", " |  | gre"))),
			change: others(member(fallback)),
			want: "loses, cloud - east: none: cable policy default: unknown cable driver \"gre\": use one of " +
				"vxlan, wireguard, vxlan+wireguard, ipsec, vxlan+ipsec → vxlan (default)\n" +
				"loses, cloud - west: none: cable policy default: unknown cable driver \"gre\": use one " +
				"of vxlan, wireguard, vxlan+wireguard, ipsec, vxlan+ipsec → vxlan (default)\n" +
				"loses, east - west: none: cable policy default: unknown cable driver \"gre\": use one " +
				"of vxlan, wireguard, vxlan+wireguard, ipsec, vxlan+ipsec → vxlan (default)",
		},
		{
			name:   "deploy-broker: a driver of another version, and then an encrypted one",
			was:    policies(copied(submarinerv1.BrokerID, made("default", " |  | gre"))),
			change: others(member(secure)),
			want: "cloud - east: none: cable policy default: unknown cable driver \"gre\": use one of vxlan, " +
				"wireguard, vxlan+wireguard, ipsec, vxlan+ipsec → wireguard (default)\n" +
				"cloud - west: none: cable policy default: unknown cable driver \"gre\": use one of " +
				"vxlan, wireguard, vxlan+wireguard, ipsec, vxlan+ipsec → wireguard (default)\n" +
				"east - west: none: cable policy default: unknown cable driver \"gre\": use one of " +
				"vxlan, wireguard, vxlan+wireguard, ipsec, vxlan+ipsec → wireguard (default)",
		},
		{
			name:   "label: another policy matches",
			was:    policies(fallback, made("a", "site=one |  | wireguard")),
			change: label("site=three"),
			want: "loses, cloud - west: wireguard (a) → vxlan (default)\n" +
				"loses, east - west: wireguard (a) → vxlan (default)\n" +
				"2 pairs: default decides instead of a\n" +
				"policy a decides no pair any more",
		},
		{
			name:   "label: the same policy matches",
			was:    policies(fallback, made("a", "site=one |  | wireguard")),
			change: label("site=one,more=x"),
		},
		{
			name:   "clusterset remove",
			was:    policies(fallback),
			change: sets("west", "another"),
			want: "ended, loses, cloud - west: vxlan (default) → none: the two clusters have no clusterset in " +
				"common\n" +
				"ended, loses, east - west: vxlan (default) → none: the two clusters have no clusterset " +
				"in common",
		},
		{
			name:   "clusterset remove: from the last one",
			was:    policies(secure),
			change: sets("west"),
			want: "ended, loses, cloud - west: wireguard (default) → none: the two clusters have no clusterset in " +
				"common\n" +
				"ended, loses, east - west: wireguard (default) → none: the two clusters have no " +
				"clusterset in common\n" +
				"alone: west",
		},
		{
			name:   "clusterset add: a cluster that is not known",
			was:    policies(secure),
			change: sets("north", "default"),
			want: "new, cloud - north: none: cluster north is not a member → wireguard (default)\n" +
				"new, east - north: none: cluster north is not a member → wireguard (default)\n" +
				"new, north - west: none: cluster north is not a member → wireguard (default)",
		},
		{
			name:   "uninstall: nobody needs its policies",
			was:    policies(fallback, made("a", "site=one |  | wireguard")),
			change: leave("west"),
			want: "ended, loses, cloud - west: wireguard (a) → none: cluster west is not a member\n" +
				"ended, loses, east - west: wireguard (a) → none: cluster west is not a member",
		},
		{
			name:   "uninstall: others need its policies",
			was:    policies(secure, made("a", "site=cloud |  | ipsec")),
			change: leave("west"),
			want: "cloud - east: ipsec (a) → wireguard (default)\n" +
				"ended, cloud - west: none: cluster west does not offer ipsec → none: cluster west is " +
				"not a member\n" +
				"ended, loses, east - west: wireguard (default) → none: cluster west is not a member\n" +
				"1 pair: default decides instead of a",
		},
		{
			name:   "revoke: another cluster, with its policies",
			was:    policies(fallback, copied("east", made("b", "site=two,!x | site=one | wireguard"))),
			change: leave("east"),
			want: "ended, loses, cloud - east: vxlan (default) → none: cluster east is not a member\n" +
				"ended, loses, east - west: wireguard (b) → none: cluster east is not a member",
		},
		{
			name:   "join: another default driver",
			was:    nil,
			change: join("wireguard", "vxlan", "wireguard"),
			want: "loses, cloud - west: vxlan (the clusters' own default) → none: no cable policy matches, and the " +
				"default drivers differ (cluster cloud: vxlan, cluster west: wireguard): create a policy (subctl " +
				"cable-policy add --name default), or join both clusters with the same --cable-driver\n" +
				"loses, east - west: vxlan (the clusters' own default) → none: no cable policy matches, " +
				"and the default drivers differ (cluster east: vxlan, cluster west: wireguard): create a policy " +
				"(subctl cable-policy add --name default), or join both clusters with the same --cable-driver",
		},
		{
			name:   "join: it no longer offers the driver",
			was:    policies(secure),
			change: join("vxlan", "vxlan"),
			want: "loses, cloud - west: wireguard (default) → none: this cluster does not offer wireguard\n" +
				"loses, east - west: wireguard (default) → none: this cluster does not offer wireguard",
		},
		{
			name:   "join: nothing changes",
			was:    policies(secure),
			change: join("vxlan", "vxlan", "wireguard"),
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			was := member(test.was...)
			if strings.HasPrefix(test.name, "join") {
				was = join("vxlan", "vxlan", "wireguard")(was)
			}
			change := impact.Of(was, test.change(was))
			require.Equal(t, test.want, written(change))
			require.Equal(t, strings.Contains(test.want, "loses, ") || change.Alone != nil, change.Refusal() != nil)
		})
	}
}

// A cluster that leaves disconnects its own pairs. Pairs of others may need its policies.
func TestDependents(t *testing.T) {
	fallback := copied(submarinerv1.BrokerID, made("default", " |  | vxlan"))
	of := func(p *v1alpha1.CablePolicies) impact.Change { return impact.Leaving(member(fallback, p), "west") }
	own := of(made("a", "site=one |  | wireguard"))
	require.NoError(t, own.Dependents("west", "this cluster"), "its own pairs do not count")
	var others []string
	for _, x := range own.On("west") {
		others = append(others, x.Other("west"))
	}
	require.Equal(t, []string{"cloud", "east"}, others)
	require.EqualError(t, of(made("a", "site=cloud |  | ipsec")).Dependents("west", "cluster west"),
		"1 pair of other clusters would change their cable, because policies that were created on cluster west are "+
			"deleted with it: 1 pair of clusters would lose encryption:\n"+
			"  cloud - east: ipsec (a) → vxlan (default), not encrypted")
	require.EqualError(t, of(made("a", "site=cloud |  | vxlan | mtu: 1300")).Dependents("west", "this cluster"),
		"1 pair of other clusters would change their cable, because policies that were created on this cluster are "+
			"deleted with it")
}

// A refusal names ten pairs, and counts the others. It is one line a pair, whatever other clusters
// have in their texts.
func TestRefusalIsBounded(t *testing.T) {
	var c impact.Change
	for i := range 12 {
		c.Cables = append(c.Cables, impact.CableChange{
			Pair: policy.Pair{X: policy.Cluster{ID: fmt.Sprintf("c%02d", i)}, Y: policy.Cluster{ID: "west"}},
			Then: catalog.Cable{Err: errors.New("a\nb")},
		})
	}
	lines := strings.Split(c.Refusal().Error(), "\n")
	require.Len(t, lines, 12)
	require.Equal(t, "12 pairs of clusters would have no cable:", lines[0])
	require.Equal(t, "  c09 - west:  (the clusters' own default) → none: a?b", lines[10])
	require.Equal(t, "  and 2 pairs more", lines[11])
}
