package mesh_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	. "subctl/agent/mesh"
	"subctl/agent/mesh/report"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable/natdiscovery"
)

// lose sets what the search for the gateway of the other cluster has found.
func (w *changingPair) lose(lost bool) {
	w.snapshot.Paths = map[string]natdiscovery.Path{
		westCable: {Address: netip.MustParseAddr("10.89.2.11"), MTU: 1500, Done: true, Lost: lost},
	}
}

// announce has the other cluster announce something.
func (w *changingPair) announce(change func(*submarinerv1.Endpoint, *submarinerv1.Cluster)) {
	var e *submarinerv1.Endpoint
	var c *submarinerv1.Cluster
	for _, o := range all(w.snapshot) {
		switch o := o.(type) {
		case *submarinerv1.Endpoint:
			if o.Spec.ClusterID == "west" {
				e = o
			}
		case *submarinerv1.Cluster:
			if o.Spec.ClusterID == "west" {
				c = o
			}
		}
	}
	change(e, c)
}

// A cluster had lost its only gateway, and the others blamed a firewall. Where the agent of a
// gateway answered before and nothing of it does now, there is no gateway.
func TestCauseNoGateway(t *testing.T) {
	w := newChangingPair(t, "")
	w.withoutPolicy()
	w.lose(false)
	w.pass(t, 0, westCable)
	const over = westCable + " over vxlan-tunnel"
	w.lose(true)
	for _, failing := range [][]string{{westCable}, {westCable, over}} {
		c := w.silently(t, failing)
		require.Equal(t, submarinerv1.ConnectionError, c.Status)
		require.Contains(t, c.StatusMessage,
			"cluster west has no gateway now: gateway west-gw is down or gone, as its agent does not answer any more")
		require.NotContains(t, c.StatusMessage, "firewall")
	}
}

// Without health checks nothing tells that a cable does not carry packets. If the agent of the
// other gateway does not answer any more, the connection is not called connected.
func TestCauseNoGatewayUnprobed(t *testing.T) {
	w := newChangingPair(t, "")
	w.withoutPolicy()
	w.announce(func(e *submarinerv1.Endpoint, _ *submarinerv1.Cluster) { e.Spec.HealthCheckIP = "" })
	w.lose(false)
	require.Equal(t, submarinerv1.Connected, w.pass(t, 0).Status)
	w.lose(true)
	c := w.pass(t, time.Second)
	require.Equal(t, submarinerv1.ConnectionError, c.Status)
	require.Contains(t, c.StatusMessage, "cluster west has no gateway now")
	w.lose(false)
	require.Equal(t, submarinerv1.Connected, w.pass(t, time.Second).Status)
}

// The kernel of a gateway carries packets without its agent. The connection stays connected, and
// tells.
func TestCauseNoAgent(t *testing.T) {
	w := newChangingPair(t, "")
	w.withoutPolicy()
	w.lose(true)
	c := w.pass(t, 0, westCable)
	require.Equal(t, submarinerv1.Connected, c.Status)
	require.Equal(t, "packets pass, but the agent of gateway west-gw of cluster west does not answer any more: "+
		"changes do not reach it", c.StatusMessage)
}

// The first cable to a gateway that has never answered: it may not be there at all.
func TestCauseFirstCable(t *testing.T) {
	w := newChangingPair(t, "")
	w.snapshot.Memory.Using = nil
	w.snapshot.Paths = map[string]natdiscovery.Path{westCable: {Done: true}}
	w.announce(func(e *submarinerv1.Endpoint, _ *submarinerv1.Cluster) { e.Spec.PublicIP = "" })
	w.pass(t, 0)
	w.failing = []string{westCable + " over ipsec-tunnel"}
	c := w.pass(t, time.Minute)
	require.Contains(t, c.StatusMessage, "Likely cause: gateway west-gw of cluster west is down or gone, as UDP port "+
		"4490 does not answer either; or a firewall between")
}

// Agents that do not run are announced, and other clusters name them rather than the network. What
// they announce is text of another cluster.
func TestCauseAgentsNotRunning(t *testing.T) {
	w := newChangingPair(t, "")
	w.withoutPolicy()
	require.NotContains(t, w.endpointConfig(t), submarinerv1.BackendNotRunning)
	w.snapshot.NotRunning = "the globalnet agent"
	require.Equal(t, "the globalnet agent", w.endpointConfig(t)[submarinerv1.BackendNotRunning])

	w.announce(func(e *submarinerv1.Endpoint, _ *submarinerv1.Cluster) {
		e.Spec.BackendConfig[submarinerv1.BackendNotRunning] = "the globalnet agent\x1b[2J"
	})
	const text = "cluster west reports that some of its agents do not run: the globalnet agent [2J"
	c := w.pass(t, 0, westCable)
	require.Equal(t, submarinerv1.Connected, c.Status)
	require.Equal(t, text, c.StatusMessage)
	c = w.silently(t, []string{westCable})
	require.Contains(t, c.StatusMessage, text)
}

func (w *changingPair) endpointConfig(t *testing.T) map[string]string {
	t.Helper()
	m, err := OfGateway(w.snapshot)
	require.NoError(t, err)
	return report.Endpoint(m.Offer).Spec.BackendConfig
}

// Without a global address, nothing of a cluster reaches others. Its gateways and theirs say so;
// they do not blame pings.
func TestCauseNoGlobalAddress(t *testing.T) {
	w := newChangingPair(t, "")
	w.withoutPolicy()
	w.announce(func(e *submarinerv1.Endpoint, c *submarinerv1.Cluster) {
		e.Spec.HealthCheckIP = ""
		e.Spec.Subnets = []string{"242.1.0.0/16"}
		c.Spec.GlobalCIDR = []string{"242.1.0.0/16"}
	})
	c := w.pass(t, 0)
	require.Equal(t, submarinerv1.Connected, c.Status)
	require.Contains(t, c.StatusMessage, "gateway west-gw of cluster west has no global address")

	w = newChangingPair(t, "")
	w.withoutPolicy()
	w.snapshot.Submariner().Spec.GlobalCIDR = "242.2.0.0/16"
	c = w.silently(t, []string{westCable})
	require.Contains(t, c.StatusMessage, "this gateway has no global address")
	require.NotContains(t, c.StatusMessage, "firewall")
	require.NotContains(t, c.StatusMessage, "ping")
}
