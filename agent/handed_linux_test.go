package agent

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
)

// A gateway that was handed packets of a connection by another gateway sends the answers back to
// that one: it may translate them. But not if it is the other gateway that fails, or that hands
// over the answers as well, because it has lost its cables.
func TestHandedOver(t *testing.T) {
	down := role.Health{Status: submarinerv1.ConnectionError}
	for name, lose := range map[string]func(east, west *side){
		"the other gateway fails": func(east, west *side) {
			east.nodes["gw"].Run(
				"nft 'table ip cut { chain forward { type filter hook forward priority -400; policy drop; }; }'")
			east.health["gw2"] = map[string]role.Health{"gateway/gw": down}
			for _, gw := range west.names[:west.gateways] {
				west.health[gw] = map[string]role.Health{east.cableOf(0) + " over vxlan-tunnel": down}
			}
		},
		"the other gateway loses its cables": func(east, west *side) {
			east.nodes["gw"].Run(
				"nft 'table ip cut { chain forward { type filter hook forward priority -400; oifname vxlan-tunnel drop; }; }'")
			east.reports = []client.Object{east.working("gw2", west)}
			east.health["worker"] = map[string]role.Health{"gateway/gw2": down}
			east.health["gw"] = map[string]role.Health{}
			for i, gw := range west.names[:west.gateways] {
				east.health["gw"][west.cableOf(i)+" over vxlan-tunnel"] = down
				west.health[gw] = map[string]role.Health{east.cableOf(0) + " over vxlan-tunnel": down}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			fabric := newFabric(t)
			east := twoGateways(t, fabric, 1, "east")
			west := twoGateways(t, fabric, 2, "west")
			sync := func() { east.sync(t, west); west.sync(t, east) }
			east.health["worker"] = map[string]role.Health{"gateway/gw2": down}
			for _, gw := range west.names[:west.gateways] {
				west.health[gw] = map[string]role.Health{east.cableOf(1) + " over vxlan-tunnel": down}
			}
			sync()
			at := west.podIP("worker") + ":8080"
			connect(t, east.pods["worker"], at, west.pods["worker"], at, func(c, s *net.TCPConn) {
				says := func(from, to *net.TCPConn, message string) {
					require.NoError(t, to.SetDeadline(time.Now().Add(20*time.Second)))
					_, err := from.Write([]byte("word"))
					require.NoError(t, err)
					_, err = io.ReadFull(to, make([]byte, 4))
					require.NoError(t, err, message)
				}
				says(c, s, "through the first gateway")
				east.health["gw"] = map[string]role.Health{"worker/worker": down}
				east.health["worker"] = map[string]role.Health{"gateway/gw": down}
				sync()
				says(s, c, "handed over to the second one")
				lose(east, west)
				sync()
				says(c, s, "through the second one alone")
				says(s, c, "and back")
			})
		})
	}
}
