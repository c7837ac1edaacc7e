package agent

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/agent/mesh"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/dataplane"
	"subctl/dataplane/kernel"
	"subctl/internal/prefix"
)

// A connection to a Service can come back to a gateway after another one has carried a part of it.
// Connection tracking there has missed bytes, and would take all packets for invalid: it would not
// translate them, and kube-proxy drops them, so that the client would wait in vain. The same
// happens at a gateway that remembers an ended connection with the same ports.
func TestServiceComesBack(t *testing.T) {
	t.Run("connections are read before", func(t *testing.T) { serviceComesBack(t, false) })
	t.Run("connections have just begun", func(t *testing.T) { serviceComesBack(t, true) })
}

func serviceComesBack(t *testing.T, young bool) {
	fabric := newFabric(t)
	east := twoGateways(t, fabric, 1, "east")
	west := twoGateways(t, fabric, 2, "west")
	const service = "10.102.0.10"
	for _, gw := range west.names[:west.gateways] {
		west.nodes[gw].Run(
			"iptables -A FORWARD -m conntrack --ctstate INVALID -j DROP; iptables -t nat -A PREROUTING -d " + service +
				"/32 -p tcp --dport 80 -j DNAT --to-destination " + west.podIP("worker") + ":8080",
		)
	}
	through := func(gateway int) { // the only gateway of west whose cables answer
		for _, gw := range east.names[:east.gateways] {
			east.health[gw] = map[string]role.Health{}
			for i := range west.gateways {
				if i != gateway {
					east.health[gw][west.cableOf(i)+" over vxlan-tunnel"] = role.Health{
						Status: submarinerv1.ConnectionError,
					}
				}
			}
		}
		east.sync(t, west)
	}
	west.sync(t, east)
	for _, gw := range west.names[:west.gateways] {
		west.nodes[gw].Do(func() {
			h, err := kernel.New(dataplane.GatewayOwner)
			require.NoError(t, err)
			t.Cleanup(h.Close)
			remote, _ := mesh.PlanOf(west.plans[[2]string{gw, "gateway"}]).Mesh.FlowsBetween()
			if young {
				_, err := h.TolerateNew(t.Context(), prefix.ContainsFunc(remote))
				require.NoError(t, err)
			}
		})
	}
	var l net.Listener
	west.pods["worker"].Do(func() {
		var err error
		l, err = net.Listen("tcp4", west.podIP("worker")+":8080")
		require.NoError(t, err)
	})
	defer l.Close()
	east.pods["worker"].Do(func() {
		through(1)
		port := &net.Dialer{LocalAddr: &net.TCPAddr{Port: 4000}, Timeout: 5 * time.Second}
		before, err := port.Dial("tcp4", service+":80")
		require.NoError(t, err)
		s, err := l.Accept()
		require.NoError(t, err)
		require.NoError(t, s.Close())
		_, err = before.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
		require.NoError(t, before.Close())
		through(0)
		c, err := port.Dial("tcp4", service+":80") // the other gateway remembers a connection with these ports
		require.NoError(t, err)
		defer c.Close()
		s, err = l.Accept()
		require.NoError(t, err)
		defer s.Close()
		go func() { _, _ = io.Copy(s, s) }()
		talk := func() error {
			require.NoError(t, c.SetDeadline(time.Now().Add(20*time.Second)))
			if _, err := c.Write([]byte("word")); err != nil {
				return err
			}
			_, err := io.ReadFull(c, make([]byte, 4))
			return err
		}
		require.NoError(t, talk())
		for _, gw := range west.names[:west.gateways] {
			if young { // nobody has read them
				break
			}
			west.nodes[gw].Do(func() {
				h, err := kernel.New(dataplane.GatewayOwner)
				require.NoError(t, err)
				defer h.Close()
				remote, _ := mesh.PlanOf(west.plans[[2]string{gw, "gateway"}]).Mesh.FlowsBetween()
				flows, err := h.Flows(dataplane.FlowQuery{Networks: remote, Tolerate: true})
				require.NoError(t, err)
				require.NoError(t, flows.Rigid)
			})
		}
		for _, gateway := range []int{1, 0, 1} {
			through(gateway)
			require.NoError(t, talk(), "the other gateway carries it on")
		}
	})
}
