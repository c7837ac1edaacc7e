package agent

import (
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/agent/mesh"
	submarinerv1 "subctl/api/submariner/v1"
)

// A connection to a Service that comes back to a gateway, after another one has carried a part of it, ends at once: this gateway has missed bytes, and its
// connection tracking takes all packets for invalid. kube-proxy drops these.
func TestServiceComesBack(t *testing.T) {
	fabric := newFabric(t)
	east, west := twoGateways(t, fabric, 1, "east"), twoGateways(t, fabric, 2, "west")
	const service = "10.102.0.10"
	for _, gw := range west.names[:west.gateways] {
		west.nodes[gw].Run("iptables -A FORWARD -m conntrack --ctstate INVALID -j DROP; iptables -t nat -A PREROUTING -d " + service + "/32 -p tcp --dport 80 -j DNAT --to-destination " + west.podIP("worker") + ":8080")
	}
	through := func(gateway int) { // the only gateway of west whose cables answer
		for _, gw := range east.names[:east.gateways] {
			east.health[gw] = map[string]mesh.Health{}
			for i := range west.gateways {
				if i != gateway {
					east.health[gw][west.cableOf(i)+" over vxlan-tunnel"] = mesh.Health{Status: submarinerv1.ConnectionError}
				}
			}
		}
		east.sync(t, west)
	}
	west.sync(t, east)
	through(0)
	var l net.Listener
	west.pods["worker"].Do(func() {
		var err error
		l, err = net.Listen("tcp4", west.podIP("worker")+":8080")
		require.NoError(t, err)
	})
	defer l.Close()
	east.pods["worker"].Do(func() {
		c, err := net.DialTimeout("tcp4", service+":80", 5*time.Second)
		require.NoError(t, err)
		defer c.Close()
		s, err := l.Accept()
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
		through(1)
		require.NoError(t, talk(), "another gateway carries it on")
		through(0)
		start := time.Now()
		require.ErrorIs(t, talk(), syscall.ECONNRESET)
		require.Less(t, time.Since(start), 10*time.Second)
	})
}
