package impact_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/policy"
	"subctl/policy/catalog"
	"subctl/policy/impact"
)

func networksOf(of map[string][]string) map[string]impact.Networks {
	out := map[string]impact.Networks{}
	for id, list := range of {
		out[id] = impact.Networks{Announced: parsed(list...)}
	}
	return out
}

func parsed(list ...string) (out []netip.Prefix) {
	for _, text := range list {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

// Clusters with global networks may use the same networks themselves, but do not reach a cluster
// that announces them.
func TestConflictsWithGlobalNetworks(t *testing.T) {
	c := &catalog.Catalog{Clusters: []policy.Cluster{
		{ID: "east", Sets: []string{"a"}}, {ID: "north", Sets: []string{"b"}}, {ID: "west", Sets: []string{"a"}},
	}}
	networks := map[string]impact.Networks{
		"east": {
			Announced: parsed("242.0.0.0/16"),
			Own:       parsed("10.244.0.0/16"),
		}, "west": {Announced: parsed("242.1.0.0/16"), Own: parsed("10.244.0.0/16")},
		"north": {Announced: parsed("10.244.0.0/16", "10.96.0.0/12")},
	}
	require.Empty(t, impact.Conflicts(c, networks))
	require.Equal(t,
		"[clusters east and north both have 10.244.0.0/16, so that they cannot be connected clusters north and west both have 10.244.0.0/16, so that they cannot be connected]",
		fmt.Sprint(impact.Conflicts(c.InSets("north", []string{"a"}), networks)))
	networks["north"] = impact.Networks{Announced: parsed("242.1.128.0/17"), Own: parsed("242.0.7.0/24")}
	require.Empty(t, impact.Conflicts(c, networks))
	require.Equal(t,
		"[clusters east and north both have 242.0.7.0/24, so that they cannot be connected clusters north and west both have 242.1.128.0/17, so that they cannot be connected]",
		fmt.Sprint(impact.Conflicts(c.InSets("north", []string{"a"}), networks)))
}

// Clusters may use the same addresses if no cluster shares a clusterset with both.
func TestConflicts(t *testing.T) {
	c := &catalog.Catalog{Clusters: []policy.Cluster{
		{ID: "east", Sets: []string{"a"}}, {ID: "hub", Sets: []string{"a", "b"}}, {ID: "west", Sets: []string{"b"}},
	}}
	networks := networksOf(
		map[string][]string{"east": {"10.1.0.0/16"}, "west": {"10.1.7.0/24", "10.2.0.0/16"}, "hub": {"10.3.0.0/16"}})
	require.Equal(t, "[clusters east and west both have 10.1.7.0/24, so that cluster hub could reach only one of them]",
		fmt.Sprint(impact.Conflicts(c, networks)))
	require.Empty(t, impact.Conflicts(c.InSets("hub", []string{"a"}), networks), "nobody reaches both")
	require.Equal(t, "[clusters east and west both have 10.1.7.0/24, so that they cannot be connected]",
		fmt.Sprint(impact.Conflicts(c.InSets("east", []string{"a", "b"}), networks)))
	networks["hub"] = impact.Networks{Announced: parsed("10.3.0.0/16", "10.2.0.0/15")}
	second := impact.Conflicts(c, networks)[1]
	require.Equal(t, []string{"hub", "west"}, []string{second.X, second.Y})
}

// A conflict is new for each cluster that should reach both clusters, also if it exists for another
// one.
func TestNewConflicts(t *testing.T) {
	c := &catalog.Catalog{Clusters: []policy.Cluster{
		{
			ID:   "east",
			Sets: []string{"a"},
		},
		{ID: "hub-1", Sets: []string{"a", "b"}},
		{ID: "hub-2", Sets: []string{"a"}},
		{ID: "west", Sets: []string{"b"}},
	}}
	networks := networksOf(map[string][]string{"east": {"10.1.0.0/16"}, "west": {"10.1.7.0/24"}})
	require.Empty(t, impact.NewConflicts(c, c, networks))
	require.Equal(t,
		"[clusters east and west both have 10.1.7.0/24, so that cluster hub-2 could reach only one of them]",
		fmt.Sprint(impact.NewConflicts(c, c.InSets("hub-2", []string{"a", "b"}), networks)))
	require.Equal(t, "[clusters east and west both have 10.1.7.0/24, so that they cannot be connected]",
		fmt.Sprint(impact.NewConflicts(c, c.InSets("east", []string{"a", "b"}), networks)))
	require.Empty(t, impact.NewConflicts(c, c.InSets("hub-1", []string{"a"}), networks))
}

// Every pair that overlaps is found, and no other.
func TestConflictsOfRandomNetworks(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		c := &catalog.Catalog{}
		networks := map[string]impact.Networks{}
		for i := range 6 {
			id := fmt.Sprintf("c%d", i)
			c.Clusters = append(c.Clusters,
				policy.Cluster{ID: id, Sets: []string{fmt.Sprint(r.IntN(3)), fmt.Sprint(r.IntN(3))}})
			for range 1 + r.IntN(2) {
				random := func() netip.Prefix {
					return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(r.IntN(4)), byte(r.IntN(3)), 0}),
						14+r.IntN(11))
				}
				n := impact.Networks{Announced: append(networks[id].Announced, random())}
				if r.IntN(2) == 0 {
					n.Own = []netip.Prefix{random()}
				}
				networks[id] = n
			}
		}
		want := map[[2]string]bool{}
		for _, reaches := range c.Clusters {
			for i, x := range c.Clusters {
				for _, y := range c.Clusters[i+1:] {
					both := (reaches.ID == x.ID || shares(reaches, x)) && (reaches.ID == y.ID || shares(reaches, y))
					of := func(id string) []netip.Prefix {
						if id == reaches.ID {
							return slices.Concat(networks[id].Announced, networks[id].Own)
						}
						return networks[id].Announced
					}
					for _, n := range of(x.ID) {
						for _, m := range of(y.ID) {
							if both && n.Overlaps(m) {
								want[[2]string{x.ID, y.ID}] = true
							}
						}
					}
				}
			}
		}
		got := map[[2]string]bool{}
		for _, x := range impact.Conflicts(c, networks) {
			got[[2]string{x.X, x.Y}] = true
		}
		require.Equal(t, want, got)
	}
}

func shares(x, y policy.Cluster) bool {
	for _, a := range x.Sets {
		for _, b := range y.Sets {
			if a == b {
				return true
			}
		}
	}
	return false
}
