package agent

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/agent/mesh"
	"subctl/agent/roles"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
)

// sameOctets returns two clusters whose gateways have private IPs that differ in the first octet
// only, 172.18.1.11 and 10.18.1.11, and a third one.
func sameOctets(t *testing.T, driver string) (east, west, north *crew) {
	t.Helper()
	fabric := newFabric(t)
	gateways := 2
	if driver == cable.IPsec {
		gateways = 1 // of each cluster: nothing can stand in for it without the kernel's IPsec
	}
	in := func(n int, lan, id string) *crew {
		return newCrewOf(t, newSideIn(t, fabric, n, lan, n, id, gateways, "gw", "gw2", "worker"), driver)
	}
	east = in(1, "172.18.1", "east")
	west = in(2, "10.18.1", "west")
	north = in(3, "172.18.3", "north")
	if why := missing(east, driver); why != "" {
		t.Skip(why)
	}
	return east, west, north
}

// missing returns why the gateways of a cluster cannot have a driver's cables; empty if they can.
func missing(c *crew, driver string) string {
	f := c.facts["gw"]
	switch {
	case strings.Contains(driver, "wireguard") && f.WireGuard.Name == "":
		return f.WireGuard.Missing
	case strings.Contains(driver, "ipsec") && f.IPsec.Name == "":
		return f.IPsec.Missing
	}
	return ""
}

// settled runs the agents of clusters that all know each other until every gateway is connected to
// every other one.
func settled(t *testing.T, all ...*crew) {
	t.Helper()
	for start := time.Now(); ; {
		connected := true
		for i, c := range all {
			c.pass(t, slices.Concat(all[:i], all[i+1:])...)
			for _, node := range c.names[:c.gateways] {
				var up int
				for _, conn := range c.reported[node].Status.Connections {
					if conn.Status == submarinerv1.Connected {
						up++
					}
				}
				connected = connected && up == c.gateways*(len(all)-1)
			}
		}
		if connected {
			return
		}
		require.Less(t, time.Since(start), 2*time.Minute, "%q", all[0].cables())
	}
}

// octets returns what the gateways of a cluster announce.
func (c *crew) octets() (out []string) {
	for _, o := range c.published {
		if e, ok := o.(*submarinerv1.Endpoint); ok {
			out = append(out, e.Spec.BackendConfig[submarinerv1.BackendOctets])
		}
	}
	slices.Sort(out)
	return out
}

// restartAgents lets the agents of gateways start again: they know what the API server has, and
// nothing else.
func (c *crew) restartAgents() {
	for _, node := range c.names[:c.gateways] {
		c.memory[node] = roles.Gateway().Recall(node, false, slices.Collect(maps.Values(c.reported)), time.Now())
	}
}

// Clusters whose gateways have private IPs that differ in the first octet only reach each other,
// and a third one both, by every driver. The one that comes later has other octets, and keeps them
// when its agents start again, while nothing is lost: of VXLAN, as programs that carry cables lose
// packets while they wait for a processor.
func TestGatewaysWithTheSameOctets(t *testing.T) {
	for _, driver := range []string{cable.VXLAN, cable.WireGuard, cable.IPsec} {
		t.Run(driver, func(t *testing.T) {
			east, west, north := sameOctets(t, driver)
			settled(t, east, north)
			before := east.octets()
			require.Equal(t, []string{"18.1.11", "18.1.12"}[:east.gateways], before)
			backend := north.podIP("worker") + ":8080"
			answerAll(t, north.pods["worker"], backend)
			undisturbed := stream(t, east.pods["worker"], backend)
			settled(t, east, west, north)
			require.Equal(t, before, east.octets(), "it was there first")
			n, lost := undisturbed()
			require.Greater(t, n, 50)
			require.True(t, driver != cable.VXLAN || len(lost) == 0, "%q", lost)
			for _, pair := range [][2]*crew{{east, west}, {west, east}, {west, north}, {north, west}, {east, north}} {
				for from, to := range map[string]string{"gw": "worker", "worker": "gw2"} {
					pair[0].pods[from].Run("ping -c2 -i0.2 -W2 " + pair[1].podIP(to))
				}
			}
			moved := west.octets()
			for _, o := range moved {
				require.NotContains(t, before, o)
			}
			undisturbed = stream(t, west.pods["worker"], backend)
			west.restartAgents()
			settled(t, west, east, north)
			require.Equal(t, moved, west.octets())
			n, lost = undisturbed()
			require.Greater(t, n, 10)
			require.True(t, driver != cable.VXLAN || len(lost) == 0, "%q", lost)
		})
	}
}

// Two clusters that have announced the same octets before they saw each other get connected, too.
func TestGatewaysWithTheSameOctetsAtOnce(t *testing.T) {
	east, west, north := sameOctets(t, cable.VXLAN)
	for _, c := range []*crew{east, west, north} {
		c.pass(t)
	}
	require.Equal(t, east.octets(), west.octets())
	settled(t, east, west, north)
	east.pods["worker"].Run("ping -c2 -i0.2 -W2 " + west.podIP("worker"))
	west.pods["gw"].Run("ping -c2 -i0.2 -W2 " + north.podIP("worker"))
}

// A cluster that announces no octets, as those of older versions, keeps its cables while it is
// upgraded: it announces those that it has. The other one, which could not be connected before, is
// once it has the new version.
func TestOctetsAfterAnUpgrade(t *testing.T) {
	east, west, north := sameOctets(t, cable.VXLAN)
	east.older = true
	west.older = true
	north.older = true
	settled(t, east, north)
	backend := north.podIP("worker") + ":8080"
	answerAll(t, north.pods["worker"], backend)
	undisturbed := stream(t, east.pods["worker"], backend)
	for range 3 {
		for _, c := range []*crew{west, east, north} {
			all := []*crew{east, west, north}
			c.pass(t, slices.DeleteFunc(all, func(o *crew) bool { return o == c })...)
		}
	}
	require.Contains(t, strings.Join(east.refusals(), "\n"),
		"address 241.18.1.11 between the gateways is already used by")
	for _, c := range []*crew{east, north, west} {
		c.older = false
		c.restartAgents()
		for range 2 {
			for _, c := range []*crew{west, east, north} {
				all := []*crew{east, west, north}
				c.pass(t, slices.DeleteFunc(all, func(o *crew) bool { return o == c })...)
			}
		}
	}
	settled(t, east, west, north)
	require.Equal(t, []string{"18.1.11", "18.1.12"}, east.octets())
	west.pods["worker"].Run("ping -c2 -i0.2 -W2 " + east.podIP("worker"))
	west.pods["worker"].Run("ping -c2 -i0.2 -W2 " + north.podIP("worker"))
	n, lost := undisturbed()
	require.Greater(t, n, 50)
	require.Empty(t, lost)
}

// refusals returns the messages about gateways to which there is no cable.
func (c *crew) refusals() (out []string) {
	for _, p := range c.plans {
		for _, r := range mesh.PlanOf(p).Mesh.Cables.Refused {
			out = append(out, r.Err.Error())
		}
	}
	return out
}
