package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Host is the root namespace as something that can be cut off: kubectl on the machine itself.
var Host = Port{Name: "host", Link: FabricUplink, Addr: HostAddr}

// Resolve finds the ports a user means by a name: "cluster1-node2" (a node), "cluster1-api" (a
// control plane), "cluster1" (all of a cluster) or "host".
func Resolve(clusters []Cluster, name string) ([]Port, error) {
	known := []string{Host.Name}
	if name == Host.Name {
		return []Port{Host}, nil
	}
	for _, c := range clusters {
		if name == c.Name() {
			return c.Ports(), nil
		}
		known = append(known, c.Name())
		for _, p := range c.Ports() {
			if name == p.Name {
				return []Port{p}, nil
			}
			known = append(known, p.Name)
		}
	}
	return nil, fmt.Errorf("nothing here is called %q: use one of %s", name, strings.Join(known, ", "))
}

// FindNode finds a node by its name.
func FindNode(clusters []Cluster, name string) (Node, error) {
	var known []string
	for _, c := range clusters {
		for _, n := range c.Members() {
			if n.Name() == name {
				return n, nil
			}
			known = append(known, n.Name())
		}
	}
	return Node{}, fmt.Errorf("no node is called %q: use one of %s", name, strings.Join(known, ", "))
}

// Cut is one direction of a severed path: packets that enter the fabric by Link for Addr are
// dropped. The source address does not matter, so that what pods send without encapsulation is cut
// as well.
type Cut struct{ Link, Addr string }

// Between returns the cuts that sever two groups of ports from each other, both ways.
func Between(a, b []Port) []Cut {
	var cuts []Cut
	for _, x := range a {
		for _, y := range b {
			if x.Link != y.Link {
				cuts = append(cuts, Cut{x.Link, y.Addr.Addr().String()}, Cut{y.Link, x.Addr.Addr().String()})
			}
		}
	}
	return SortCuts(cuts)
}

// Alone returns the cuts that sever a group of ports from everything else, but not from each other.
func Alone(clusters []Cluster, group []Port) []Cut {
	rest := []Port{Host}
	for _, c := range clusters {
		rest = append(rest, c.Ports()...)
	}
	rest = slices.DeleteFunc(rest, func(p Port) bool { return slices.Contains(group, p) })
	return Between(group, rest)
}

// SortCuts orders and deduplicates.
func SortCuts(cuts []Cut) []Cut {
	slices.SortFunc(cuts,
		func(a, b Cut) int { return cmp.Or(cmp.Compare(a.Link, b.Link), cmp.Compare(a.Addr, b.Addr)) })
	return slices.Compact(cuts)
}

// Without is the cuts that remain when some are healed.
func Without(cuts, healed []Cut) []Cut {
	return slices.DeleteFunc(slices.Clone(cuts), func(c Cut) bool { return slices.Contains(healed, c) })
}

// Heal is the cuts that remain when a group has all its paths back.
func Heal(cuts []Cut, group []Port) []Cut {
	return slices.DeleteFunc(slices.Clone(cuts), func(c Cut) bool {
		return slices.ContainsFunc(group,
			func(p Port) bool { return c.Link == p.Link || c.Addr == p.Addr.Addr().String() })
	})
}
