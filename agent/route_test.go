package agent

import (
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/agent/roles"
	"subctl/dataplane"
)

// Until the route agent has given the node its address in the pod network, no route of
// the gateway's asks for it as its source: the kernel would refuse it.
func TestNoRouteFromAnAddressThatIsNotThere(t *testing.T) {
	w := newWorld(t, roles.Gateway(), "two-clusters")
	facts := w.Kernel.Facts
	there := false
	w.Kernel.Facts = func() (dataplane.Facts, error) {
		f, err := facts()
		if !there {
			f.OwnAddrs = nil
		}
		return f, err
	}
	w.run(t)
	require.Contains(t, w.holds(t, dataplane.GatewayOwner), "10.112.0.0/16 table 170171100 nhid 535382446 mtu 1450")
	there = true
	w.run(t)
	require.Contains(t, w.holds(t, dataplane.GatewayOwner),
		"10.112.0.0/16 table 170171100 nhid 535382446 src 10.111.1.1 mtu 1450")
}

// A gateway node is a worker until its kernel has had the rule for the table of cables. Then it is
// a gateway, whatever becomes of the rule.
func TestGatewayNodeWithoutRule(t *testing.T) {
	w := newWorld(t, roles.Route(), "two-active-gateways")
	facts := w.Kernel.Facts
	noCableRule := true
	w.Kernel.Facts = func() (dataplane.Facts, error) {
		f, err := facts()
		f.NoCableRule = noCableRule
		return f, err
	}
	const toWest, toWorker = "ip route replace 10.112.0.0/16 table 170171150", "ip route replace 10.111.2.0/24 table " +
		"170171150"
	w.run(t)
	require.Contains(t, w.holds(t, dataplane.RouteOwner), toWest)
	for _, noCableRule = range []bool{false, true} {
		w.run(t)
		require.Contains(t, w.holds(t, dataplane.RouteOwner), toWorker)
		require.NotContains(t, w.holds(t, dataplane.RouteOwner), toWest)
	}
}
