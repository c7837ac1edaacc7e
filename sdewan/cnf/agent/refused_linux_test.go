//go:build linux

package agent

import (
	"testing"

	"subctl/sdewan/rest"

	"github.com/stretchr/testify/require"
)

// Routes for which the kernel has no room have no effect; everything else has.
func TestTrafficBesideWhatTheKernelRefuses(t *testing.T) {
	s := newSite(t)
	server(t, s.far, "192.0.2.1:80")
	server(t, s.far, "192.0.2.1:81")
	c := balance("1", "1", "1", "1")
	c.Zones = []rest.Zone{
		{Name: "lan", Network: []string{"net0"}},
		{Name: "wan", Network: []string{"net1", "net2"}},
	}
	c.Forwardings = []rest.Forwarding{{Name: "out", Src: "lan", Dest: "wan"}}
	c.Firewall = []rest.FirewallRule{
		{Name: "web", Src: "lan", Dest: "wan", Proto: "tcp", DestPort: "81", Target: "REJECT"},
	}
	c.Routes = []rest.Route{
		{Name: "all", Dst: "default", GW: "192.168.1.3", Dev: "net0"},
		{Name: "lan", Dst: "192.168.1.0/24", Dev: "net0"},
	}
	report := s.applyPart(c)
	require.Contains(t, report, "route/routes all: dst: the pod has a route to default already")
	require.Contains(t, report, "route/routes lan: dst: the pod has a route to 192.168.1.0/24 already")
	require.NotContains(t, report, "web")
	require.NotContains(t, report, "converge")
	conn, _, err := dial(s.lan, "", "192.0.2.1:80")
	require.NoError(t, err)
	conn.Close()
	_, _, err = dial(s.lan, "", "192.0.2.1:81")
	require.ErrorContains(t, err, "refused")
}
