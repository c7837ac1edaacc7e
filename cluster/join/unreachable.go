package join

import (
	"fmt"
	"net/netip"
	"slices"

	"subctl/api/submariner/v1alpha1"
	"subctl/cluster/networks"
	"subctl/internal/prefix"
)

// unreachable describes the networks of this cluster that its Submariner was joined with, and
// that the next one does not cover: other clusters can no longer reach all of their addresses.
func (r request) unreachable(was, will v1alpha1.SubmarinerSpec) []string {
	if was.GlobalCIDR != "" || will.GlobalCIDR != "" {
		return unreachableGlobally(was, will)
	}
	var out []string
	for _, n := range []struct {
		what, flag, was, will, guess string
		specified                    bool
	}{
		{"pod", "clustercidr", was.ClusterCIDR, will.ClusterCIDR, r.member.Network.Guess, len(r.ClusterCIDRs) > 0},
		{"Service", "servicecidr", was.ServiceCIDR, will.ServiceCIDR, "", len(r.ServiceCIDRs) > 0},
	} {
		next := networks.Parse(n.will)
		lost := func(p netip.Prefix) bool { return !prefix.CoverTogether(next, p) }
		if !slices.ContainsFunc(networks.Parse(n.was), lost) {
			continue
		}
		guess := ""
		if n.guess != "" && !n.specified {
			guess = ", which is a guess"
		}
		out = append(
			out,
			fmt.Sprintf(
				"the %s network of this cluster changes from %s to %s%s: other clusters can no longer reach all of its addresses; keep it with --%s %s",
				n.what, n.was, n.will, guess, n.flag, n.was),
		)
	}
	return out
}

// unreachableGlobally is unreachable for a cluster that has a global network before or after
// joining.
func unreachableGlobally(was, will v1alpha1.SubmarinerSpec) []string {
	next := networks.Parse(will.GlobalCIDR)
	switch {
	case was.GlobalCIDR == "":
		return []string{
			fmt.Sprintf(
				"this cluster gets the global network %s: other clusters can no longer reach its pods and Services by the addresses that they have in the cluster (%s and %s), "+
					"but exported Services, and pods with global addresses of their own, by addresses of that network; stay as it is with --globalnet=false",
				will.GlobalCIDR,
				was.ClusterCIDR,
				was.ServiceCIDR,
			),
		}
	case will.GlobalCIDR == "":
		return []string{
			fmt.Sprintf(
				"this cluster gives up its global network %s: other clusters can no longer reach its addresses, but its pods and Services by the addresses that they have in the cluster (%s and %s); "+
					"keep it with --globalnet",
				was.GlobalCIDR,
				will.ClusterCIDR,
				will.ServiceCIDR,
			),
		}
	case !slices.ContainsFunc(networks.Parse(was.GlobalCIDR), func(p netip.Prefix) bool {
		return !prefix.CoverTogether(next, p)
	}):
		return nil
	}
	return []string{
		fmt.Sprintf(
			"the global network of this cluster changes from %s to %s: other clusters can no longer reach its addresses, and pods and Services get new ones; "+
				"keep it by omitting --globalnet-cidr and --globalnet-cluster-size",
			was.GlobalCIDR,
			will.GlobalCIDR,
		),
	}
}
