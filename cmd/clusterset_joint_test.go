package cmd

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/broker"
	"subctl/policy"
	"subctl/policy/catalog"
	"subctl/policy/impact"
)

// setsOf returns the clustersets of a broker with these members.
func setsOf(members map[string][]string) *sets {
	s := &sets{catalog: &catalog.Catalog{}}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		s.sets = append(s.sets, broker.ClusterSet{Name: name, Members: members[name]})
	}
	for _, id := range s.members() {
		s.catalog.Clusters = append(s.catalog.Clusters, policy.Cluster{ID: id, Sets: s.of(id), Driver: "vxlan"})
	}
	return s
}

// What is suggested to connect two clusters connects as few others as possible, and clusterset add
// does not refuse it.
func TestJoint(t *testing.T) {
	networks := map[string]impact.Networks{}
	for i, id := range []string{"east", "hub", "north", "south", "west"} {
		networks[id] = impact.Networks{
			Announced: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.%d.0.0/16", i))},
		}
	}
	conflicting := maps.Clone(networks)
	conflicting["south"] = networks["west"]
	conflicting["other"] = networks["east"]
	for name, test := range map[string]struct {
		members  map[string][]string
		networks map[string]impact.Networks
		want     string
	}{
		"no set connects fewer than the spoke's own": {
			map[string][]string{"default": {"east", "hub", "north"}, "pair": {"east"}},
			networks,
			"pair [west] []",
		},
		"an empty set instead of one with others": {
			map[string][]string{"default": {"east", "hub"}, "lab": nil},
			networks,
			"lab [east west] []",
		},
		"others are connected already": {
			map[string][]string{"default": {"east", "hub", "north"}, "big": {"west", "north", "hub", "south"}},
			networks,
			"default [west] []",
		},
		"neither is in a set": {
			map[string][]string{"default": {"hub"}},
			networks,
			"default [east west] [east - hub hub - west]",
		},
		"a conflict of a neighbor in the first one": {
			map[string][]string{"a": {"east", "hub"}, "b": {"west", "north"}, "default": {"hub", "south"}},
			conflicting,
			"b [east] [east - north]",
		},
		"conflicts everywhere": {
			map[string][]string{"default": {"east", "south"}, "b": {"west", "hub"}},
			conflicting,
			"alone: false: clusters south and west both have 10.4.0.0/16, so that cluster east could reach only one of them",
		},
		"conflicts except in a set of their own": {
			map[string][]string{
				"a":       {"east", "hub"},
				"b":       {"west", "far"},
				"c":       {"far", "other"},
				"default": {"hub", "south"},
			},
			conflicting,
			"alone: true: clusters south and west both have 10.4.0.0/16, so that cluster hub could reach only one of them",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := setsOf(test.members)
			j, alone, refused := s.joint("east", "west", test.networks)
			if refused != nil {
				require.Equal(t, test.want, fmt.Sprint("alone: ", alone, ": ", refused))
				return
			}
			require.Equal(t, test.want, fmt.Sprintf("%s %v %v", j.set, j.add, j.also))
		})
	}
}
