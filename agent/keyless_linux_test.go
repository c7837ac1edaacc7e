package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/agent/roles"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
	"subctl/dataplane"
	"subctl/dataplane/kernel"
)

// restart replaces the agent of a gateway: the next one knows what it has reported, and its kernel.
func (c *crew) restart(t *testing.T, node string) {
	t.Helper()
	r := roles.Gateway()
	at := [2]string{node, r.Name}
	delete(c.plans, at)
	c.memory[node] = r.Recall(node, false, []*submarinerv1.Gateway{c.reported[node]}, time.Now())
	c.nodes[node].Do(func() {
		c.hosts[at].Close()
		var err error
		c.hosts[at], err = kernel.New(r.Owner)
		require.NoError(t, err)
	})
}

// The device of wireguard-go ends with the agent of a gateway. The next agent makes it again, and
// packets take the other gateway of the cluster until it has agreed on keys with the other ends:
// nothing is lost. An agent that finds the device as it was changes nothing.
func TestRestartWithoutKeys(t *testing.T) {
	urgent(t)
	fabric := newFabric(t)
	east := newCrew(t, fabric, 1, "east", cable.VXLANWireGuard)
	west := newCrew(t, fabric, 2, "west", cable.VXLANWireGuard)
	east.both()
	west.both()
	var works []string
	for _, pair := range []string{"gw-gw", "gw-gw2", "gw2-gw", "gw2-gw2"} {
		works = append(works, pair+" "+cable.VXLANWireGuard)
	}
	settle := func(pass func()) {
		t.Helper()
		for start := time.Now(); !slices.Equal(works, east.cables()) || !slices.Equal(works, west.cables()); pass() {
			require.Less(t, time.Since(start), time.Minute, "east %q, west %q", east.cables(), west.cables())
		}
	}
	both := func() { east.pass(t, west); west.pass(t, east) }
	both()
	settle(both)
	both()

	t.Log("the agent alone is restarted")
	east.restart(t, "gw")
	snap := east.snapshot(t, "gw", roles.Gateway(), west)
	p, err := roles.Gateway().Plan(snap)
	require.NoError(t, err)
	east.nodes["gw"].Do(func() {
		ops, err := dataplane.Sync(context.Background(), east.hosts[[2]string{"gw", "gateway"}], p.State)
		require.NoError(t, err)
		require.Empty(t, ops)
	})

	t.Log("with the device; the other cluster has found it already, and no handshake gets through")
	backend := west.podIP("worker") + ":8080"
	answerAll(t, west.pods["worker"], backend)
	for _, o := range east.published {
		if e, is := o.(*submarinerv1.Endpoint); is && e.Spec.Hostname == "gw" {
			e.Spec.BackendConfig[submarinerv1.BackendDrain] = submarinerv1.Drained
		}
	}
	west.pass(t, east)
	gw := east.nodes["gw"]
	gw.Run(
		fmt.Sprintf(
			"nft 'add table ip cut; add chain ip cut out { type filter hook output priority 0; }; add rule ip cut out oifname eth0 udp sport %d drop'",
			dataplane.WireGuardPort),
	)
	gw.Run("ip link del " + dataplane.WireGuardDevice)
	end := stream(t, east.pods["gw"], backend)
	time.Sleep(100 * time.Millisecond) // the kernel's own detour
	east.restart(t, "gw")
	for range 2 {
		east.passOf(t, "gw", west)
	}
	require.NotContains(t, gw.Run("ip route show table 170171100"), "dev "+dataplane.VXLANWireGuardDevice)
	time.Sleep(500 * time.Millisecond)
	gw.Run("nft delete table ip cut")
	settle(func() { east.passOf(t, "gw", west) })
	west.pass(t, east)
	time.Sleep(200 * time.Millisecond)
	sent, lost := end()
	require.Greater(t, sent, 200)
	require.Empty(t, lost, "packets of a stream of %d", sent)
	east.passOf(t, "gw", west)
	require.True(t, slices.ContainsFunc(strings.Split(gw.Run("ip nexthop show"), "\n"), func(line string) bool {
		return strings.Contains(line, "dev "+dataplane.VXLANWireGuardDevice)
	}))
}
