package agent

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/internal/nstest"
)

// twoGateways returns a cluster with two active gateways, and a worker.
func twoGateways(t testing.TB, fabric *nstest.NS, n int, id string) *side {
	return newSideOf(t, fabric, n, id, 2, "gw", "gw2", "worker")
}

// working returns the report of a gateway that it has a working cable to the first gateway of
// another cluster.
func (s *side) working(gw string, to *side) *submarinerv1.Gateway {
	g := &submarinerv1.Gateway{ObjectMeta: metav1.ObjectMeta{Name: gw}}
	g.Status.HAStatus = submarinerv1.HAStatusActive
	g.Status.Connections = []submarinerv1.Connection{{Status: submarinerv1.Connected, Endpoint: to.endpoint().Spec}}
	return g
}

// sent returns the number of packets that a gateway has sent through its cables.
func sent(gw *nstest.NS) string {
	lines := strings.Split(strings.TrimSpace(gw.Run("ip -s link show vxlan-tunnel")), "\n")
	return strings.Fields(lines[len(lines)-1])[1]
}

// Pods on gateways and on workers of two clusters with two active gateways each reach each other,
// and cross all cables.
func TestSeveralGateways(t *testing.T) {
	fabric := newFabric(t)
	east := twoGateways(t, fabric, 1, "east")
	west := twoGateways(t, fabric, 2, "west")
	sync := func() int { return east.sync(t, west) + west.sync(t, east) }
	sync()
	require.Zero(t, sync(), "the second sync must find nothing to do")
	t.Run("all work", func(t *testing.T) {
		for from, to := range map[string]string{"gw": "gw2", "gw2": "worker", "worker": "gw"} {
			reach(t, east, from, west, to)
			reach(t, west, from, east, to)
		}
		reach(t, east, "worker", west, "worker")
		for _, gw := range east.names[:2] {
			require.NotEqual(t, "0", sent(east.nodes[gw]), "gateway %s carries some flows", gw)
		}
	})
	for name, lose := range map[string]func(){
		"no cable answers any more": func() {
			east.health["gw"] = map[string]role.Health{}
			for i := range west.gateways {
				east.health["gw"][west.cableOf(i)+
					" over vxlan-tunnel"] = role.Health{Status: submarinerv1.ConnectionError}
			}
		},
		"no cable has answered yet": func() { east.fresh = map[string]bool{"gw": true} },
	} {
		t.Run(name, func(t *testing.T) {
			lose()
			east.reports = append(east.reports, east.working("gw2", west))
			east.sync(t, west)
			groups := east.nodes["gw"].Run("ip nexthop show | grep 'group' | grep -v bucket; ip route show table " +
				"170171100")
			before := sent(east.nodes["gw"])
			for _, from := range east.names {
				reach(t, east, from, west, "worker")
			}
			require.Equal(t, before, sent(east.nodes["gw"]), "the gateway sends nothing by its own cables\n%s", groups)
			t.Log("packets that the sibling sends back end here")
			mac := strings.Fields(east.nodes["gw2"].Run("ip -o link show vx-submariner | grep -o 'link/ether.*'"))[1]
			require.Regexp(t, fmt.Sprintf("ether saddr %s counter packets .* drop", mac),
				east.nodes["gw"].Run("nft list chain ip submariner-route-antispoof detour"))
			east.health = map[string]map[string]role.Health{}
			east.reports = nil
			east.fresh = nil
			sync()
		})
	}
	t.Run("Services", func(t *testing.T) {
		for _, backend := range west.names {
			for i := range 8 {
				service := fmt.Sprintf("10.102.0.%d", 10+i)
				for _, gw := range west.names[:west.gateways] {
					west.nodes[gw].Run(
						fmt.Sprintf(
							"iptables -t nat -A PREROUTING -d %s/32 -p tcp --dport 80 -j DNAT --to-destination %s:8080",
							service, west.podIP(backend)),
					)
				}
				for _, from := range east.names {
					connect(
						t,
						east.pods[from],
						service+":80",
						west.pods[backend],
						west.podIP(backend)+":8080",
						func(_, server *net.TCPConn) {
							require.Equal(t, east.podIP(from), server.RemoteAddr().(*net.TCPAddr).IP.String(),
								"the client's own address")
						},
					)
				}
			}
			translated := 0
			for _, gw := range west.names[:west.gateways] {
				if strings.TrimSpace(
					west.nodes[gw].Run(
						"iptables -t nat -nvxL PREROUTING | awk '/DNAT/ {n+=$1} END {print n}'")) != "0" {
					translated++
				}
				west.nodes[gw].Run("iptables -t nat -F PREROUTING")
			}
			require.Equal(t, 2, translated, "both gateways translate some connections")
		}
	})
	t.Run("a gateway has lost its way to a worker", func(t *testing.T) {
		// the packets that gateways of the cluster have got from each other for its pods
		handed := func(to ...string) (n int) {
			for _, gw := range to {
				n += detoured(t, east.nodes[gw], "-d 10.111.0.0/16")
			}
			return n
		}
		require.Zero(t, handed("gw", "gw2"))
		east.nodes["worker"].Run(fmt.Sprintf(`nft -f - <<X
table ip cut {
	chain in { type filter hook prerouting priority -400; ip saddr %[1]s drop; }
	chain out { type filter hook postrouting priority 400; ip daddr %[1]s drop; }
}
X`, "172.18.1.11"))
		down := role.Health{Status: submarinerv1.ConnectionError}
		east.health["gw"] = map[string]role.Health{"worker/worker": down}
		east.health["worker"] = map[string]role.Health{"gateway/gw": down}
		sync()
		for _, node := range west.names {
			reach(t, west, node, east, "worker")
			reach(t, east, "worker", west, node)
		}
		t.Log("connections to a Service, of which some arrive at that gateway")
		for i := range 8 {
			service := fmt.Sprintf("10.101.0.%d", 10+i)
			for _, gw := range east.names[:east.gateways] {
				east.nodes[gw].Run(
					fmt.Sprintf(
						"iptables -t nat -A PREROUTING -d %s/32 -p tcp --dport 80 -j DNAT --to-destination %s:8080",
						service, east.podIP("worker")),
				)
			}
			for _, from := range west.names {
				connect(
					t,
					west.pods[from],
					service+":80",
					east.pods["worker"],
					east.podIP("worker")+":8080",
					func(_, server *net.TCPConn) {
						require.Equal(t, west.podIP(from), server.RemoteAddr().(*net.TCPAddr).IP.String(),
							"the client's own address")
					},
				)
			}
		}
		for _, gw := range east.names[:east.gateways] {
			require.NotEqual(
				t,
				"0",
				strings.TrimSpace(
					east.nodes[gw].Run("iptables -t nat -nvxL PREROUTING | awk '/DNAT/ {n+=$1} END {print n}'")),
				gw,
			)
			east.nodes[gw].Run("iptables -t nat -F PREROUTING")
		}
		require.NotZero(t, handed("gw2"), "it gets some from the other gateway")
		t.Log("both have lost it: nothing goes round in circles")
		east.health["gw2"] = map[string]role.Health{"worker/worker": down}
		east.nodes["worker"].Run("nft flush chain ip cut in; nft add rule ip cut in udp dport 4800 drop")
		sync()
		before := handed("gw", "gw2")
		_, err := west.pods["gw"].Try("ping -c3 -i0.2 -W1 " + east.podIP("worker"))
		require.Error(t, err)
		require.Equal(t, 3, handed("gw", "gw2")-before, "each packet once")
		east.nodes["worker"].Run("nft delete table ip cut")
		east.health = map[string]map[string]role.Health{}
		sync()
	})
	east.leave(t)
	west.leave(t)
}
