//go:build linux

package agent

import (
	"net"
	"testing"

	"subctl/dataplane"
	"subctl/dataplane/kernel"
	"subctl/internal/nstest"
	"subctl/sdewan/rest"

	"github.com/stretchr/testify/require"
)

// serveAPI serves at the address of the REST API, as the CNF does.
func (s *site) serveAPI() {
	s.t.Helper()
	var l net.Listener
	var err error
	s.cnf.Do(func() { l, err = kernel.ListenTCP(s.t.Context(), apiAddress, dataplane.ControlMark) })
	require.NoError(s.t, err)
	answer(s.t, l)
}

// The controller reaches the REST API whatever the CNF is told: otherwise nobody could take it
// back.
func TestHostileRulesLeaveTheAPI(t *testing.T) {
	s := newSite(t)
	s.serveAPI()
	tunnel := func(local, remote string) rest.Config {
		return rest.Config{
			Remotes: []rest.Remote{
				{Name: "hub", Gateway: "192.0.2.1", Auth: "psk", PreSharedKey: "x", Connections: []rest.Connection{
					{Name: "a", Type: "tunnel", Mode: "add", LocalSubnet: local, RemoteSubnet: remote},
				}},
			},
		}
	}
	everything := []rest.Zone{
		{Name: "all", Subnet: []string{"0.0.0.0/0"}, Input: "DROP", Output: "DROP", Forward: "DROP"},
	}
	for _, test := range []struct {
		name   string
		config rest.Config
	}{
		{
			"a port that leads to a Service",
			rest.Config{
				NATs: []rest.NAT{
					{
						Name:     "web",
						Target:   "DNAT",
						Proto:    "tcp",
						SrcDPort: "443",
						DestIP:   "192.168.1.2",
						DestPort: "443",
					},
				},
			},
		},
		{
			"a rule that refuses everything",
			rest.Config{
				Firewall: []rest.FirewallRule{
					{Name: "all", Src: "*", Proto: "all", Target: "DROP"},
					{Name: "out", Proto: "all", Target: "DROP"},
				},
			},
		},
		{"a zone of everything", rest.Config{Zones: everything}},
		{
			"that is not tracked",
			rest.Config{
				Zones:    everything,
				Firewall: []rest.FirewallRule{{Name: "raw", Src: "all", Proto: "all", Target: "NOTRACK"}},
			},
		},
		{
			"a mark that means to drop",
			rest.Config{Firewall: []rest.FirewallRule{{Name: "mark", Proto: "all", Target: "MARK", SetMark: "0x3d00"}}},
		},
		{"a tunnel to all private networks", tunnel("", "10.0.0.0/8")},
		{"a tunnel to everything", tunnel("10.0.0.0/8", "0.0.0.0/0")},
		{"nothing", rest.Config{}},
	} {
		s.apply(test.config)
		c, seen, err := dial(s.node, "", apiAddress)
		require.NoError(t, err, test.name)
		require.Equal(t, "10.244.0.1", seen)
		c.Close()
	}
}

// The REST API is for the cluster: no uplink and no LAN leads to it, although Linux takes an
// address for one of all devices.
func TestHostileNeighboursOfTheAPI(t *testing.T) {
	s := newSite(t)
	s.serveAPI()
	s.isp1.Run("ip route add 10.244.0.7 via 198.51.100.2")
	for name, ns := range map[string]*nstest.NS{"uplink": s.isp1, "lan": s.lan} {
		c, _, err := dial(ns, "", apiAddress)
		if err == nil {
			c.Close()
		}
		require.Error(t, err, "%s reaches the REST API", name)
	}
	c, _, err := dial(s.node, "", apiAddress)
	require.NoError(t, err)
	c.Close()
}
