package agent

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/agent/mesh"
	"subctl/agent/roles"
	"subctl/cable"
)

// Two clusters with two active gateways each get another cable by a policy, and the one before
// again, while packets flow between pods of all nodes: nothing is lost, whichever agent follows
// first. Where the driver connects to one gateway of a cluster, and none stands in for it, three of
// the four pairs of gateways have no cable then: theirs stay until that of the fourth works.
func TestPolicyChangeOfSeveralGateways(t *testing.T) {
	type agents struct{ cluster, node string } // of a node
	for name, test := range map[string]struct {
		driver, in string   // and the driver in its place; empty if there is none
		order      []agents // who follows first
	}{
		"with a stand-in": {
			cable.WireGuard,
			cable.VXLANWireGuard,
			[]agents{
				{"east", "gw"},
				{"east", "gw2"},
				{"east", "worker"},
				{"west", "gw"},
				{"west", "gw2"},
				{"west", "worker"},
			},
		},
		"wireguard": {
			cable.WireGuard,
			"",
			[]agents{
				{"west", "gw2"},
				{"east", "gw"},
				{"west", "gw"},
				{"west", "worker"},
				{"east", "worker"},
				{"east", "gw2"},
			},
		},
		"ipsec": {
			cable.IPsec,
			"",
			[]agents{
				{"west", "worker"},
				{"east", "gw2"},
				{"west", "gw"},
				{"east", "gw"},
				{"east", "worker"},
				{"west", "gw2"},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			urgent(t)
			fabric := newFabric(t)
			east := newCrew(t, fabric, 1, "east", cable.VXLAN)
			west := newCrew(t, fabric, 2, "west", cable.VXLAN)
			var plain, changed []string
			for _, pair := range []string{"gw-gw", "gw-gw2", "gw2-gw", "gw2-gw2"} {
				plain = append(plain, pair+" "+cable.VXLAN)
				changed = append(changed, pair+" "+test.in)
			}
			if test.in == "" {
				changed = []string{"gw-gw " + test.driver}
			}
			for _, c := range []*crew{east, west} {
				c.both()
				if test.in == "" {
					c.offers = []string{cable.VXLAN, test.driver}
				}
			}
			pass := func(policy string) {
				for _, a := range test.order {
					c := east
					other := west
					if a.cluster == west.id {
						c = west
						other = east
					}
					c.policy = policy
					c.passOf(t, a.node, other)
				}
			}
			settle := func(policy string, want []string) {
				t.Helper()
				working := func(c *crew) []string {
					return slices.DeleteFunc(c.cables(), func(text string) bool { return strings.Count(text, " ") > 1 })
				}
				start := time.Now()
				for n := 0; n < 3 || !slices.Equal(want, working(east)) || !slices.Equal(want, working(west)); n++ {
					require.Less(t, time.Since(start), time.Minute, "east %q, west %q", east.cables(), west.cables())
					pass(policy)
				}
				t.Logf("from %s to %s: %v", start.Format(clock), time.Now().Format(clock), want)
			}
			settle("", plain)

			var streams []func() (int, []string)
			var names []string
			for _, c := range [][2]*crew{{east, west}, {west, east}} {
				for _, node := range c[0].names {
					answerAll(t, c[0].pods[node], c[0].podIP(node)+":8080")
				}
			}
			for _, c := range [][2]*crew{{east, west}, {west, east}} {
				for from, to := range map[string]string{"gw": "gw2", "gw2": "worker", "worker": "worker"} {
					for range 2 {
						// no more packets than wireguard-go can forward on a busy machine
						streams = append(streams,
							streamEvery(t, 10*time.Millisecond, c[0].pods[from], c[1].podIP(to)+":8080"))
						names = append(names, "from "+from+" of "+c[0].id+" to "+to)
					}
				}
			}
			settle(test.driver, changed)
			settle("", plain)        // the other cables are still kept up
			if name == "wireguard" { // and when they are gone
				settle(test.driver, changed)
				kept := func(c *crew) int {
					return len(mesh.PlanOf(c.plans[[2]string{"gw", roles.Gateway().Name}]).Retiring) +
						len(mesh.PlanOf(c.plans[[2]string{"gw2", roles.Gateway().Name}]).Retiring)
				}
				for kept(east)+kept(west) > 0 {
					pass(test.driver)
				}
				settle("", plain)
			}
			for i, end := range streams {
				n, lost := end()
				require.Greater(t, n, 50)
				// An interruption costs 60 and more. On a busy machine, programs that encrypt may
				// drop some.
				require.Less(t, len(lost), 10, "packets of a stream of %d, %s: %v", n, names[i], lost)
			}
		})
	}
}
