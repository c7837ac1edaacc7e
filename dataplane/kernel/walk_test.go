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

// everything is all that a plan might leave traces in.
const everything = "ip -4 -d link; ip -4 addr; bridge fdb; ip -4 neigh; ip -4 route show table all; ip -4 rule; ip nexthop; " +
	"iptables-save; ipset list; sysctl -a -r '^net.ipv4.(conf|ip_forward)'"

// noise is what differs from one look to the next, what iptables leaves of a table in
// which there are no rules, whom the kernel looked for in vain, and what the kernel's
// WireGuard turns off for good when a device of it comes up (wg_open in its device.c).
var noise = regexp.MustCompile(`^#|^COMMIT|^\*|^:[A-Z]+ ACCEPT \[|valid_lft|dev eth0 (INCOMPLETE|FAILED)|conf\.all\.send_redirects`)

// traces are the lines of everything.
func traces(ns *nstest.NS) []string {
	return slices.DeleteFunc(strings.Split(ns.Run(everything), "\n"), noise.MatchString)
}

// Any plan can follow any other, and the empty one leaves the node as it was.
func TestWalk(t *testing.T) {
	ns, h := node(t, dataplane.GatewayOwner)
	before := traces(ns)
	for seed := range uint64(4) {
		ns.Do(func() { dataplanetest.Walk(t, h, seed, 25) })
		require.ElementsMatch(t, before, traces(ns), "seed %d", seed)
	}
}
