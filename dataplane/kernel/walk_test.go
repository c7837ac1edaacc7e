//go:build linux

package kernel

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"subctl/dataplane"
	"subctl/dataplane/dataplanetest"
	"subctl/internal/nstest"

	"github.com/stretchr/testify/require"
)

// everything lists all places in which a plan could leave traces.
const everything = "ip -4 -d link; ip -4 addr; bridge fdb; ip -4 neigh; ip -4 route show table all; ip -4 rule; ip nexthop; " +
	"iptables-save; ipset list; nft list tables | grep -e submariner -e subctl; sysctl -a -r '^net.ipv4.(conf|ip_forward)'"

// noise matches lines that differ from one listing to the next: what iptables leaves of a
// table without rules, neighbours that the kernel did not find, and the setting that the
// kernel's WireGuard turns off for good when its device comes up (wg_open in device.c).
var noise = regexp.MustCompile(
	`^#|^COMMIT|^\*|^:[A-Z]+ ACCEPT \[|valid_lft|dev eth0 (INCOMPLETE|FAILED)|conf\.all\.send_redirects`)

// traces returns the lines of everything, without noise.
func traces(ns *nstest.NS) []string {
	return slices.DeleteFunc(strings.Split(ns.Run(everything), "\n"), noise.MatchString)
}

// Any plan can follow any other, and the empty one leaves the node as it was.
func TestWalk(t *testing.T) {
	owner := dataplane.GatewayOwner
	// as the walk has objects of both agents
	owner.Nftables = slices.Concat(owner.Nftables, dataplane.RouteOwner.Nftables)
	ns, h := node(t, owner)
	before := traces(ns)
	seeds := uint64(4)
	if testing.Short() { // on emulated processors
		seeds = 2
	}
	for seed := range seeds {
		ns.Do(func() { dataplanetest.Walk(t, h, seed, 25) })
		require.ElementsMatch(t, before, traces(ns), "seed %d", seed)
	}
}

// The same for a CNF.
func TestWalkCNF(t *testing.T) {
	ns, h := node(t, dataplane.CNFOwner)
	before := traces(ns)
	for seed := range uint64(4) {
		ns.Do(func() { dataplanetest.WalkCNF(t, h, seed, 25) })
		require.ElementsMatch(t, before, traces(ns), "seed %d", seed)
	}
}
