//go:build linux

package agent

import (
	"testing"
	"time"

	"subctl/sdewan/rest"

	"github.com/stretchr/testify/require"
)

// A new rule ends the connections that it would not admit, and no others.
func TestTrafficEndsWithANewRule(t *testing.T) {
	s := newSite(t)
	server(t, s.far, "192.0.2.1:80")
	server(t, s.far, "192.0.2.1:81")
	c := balance("1", "1", "2", "1")
	c.Zones = []rest.Zone{
		{Name: "lan", Network: []string{"net0"}},
		{Name: "wan", Network: []string{"net1", "net2"}, Masq: "1"},
	}
	c.Forwardings = []rest.Forwarding{{Name: "out", Src: "lan", Dest: "wan"}}
	s.apply(c)
	ends, _, err := dial(s.lan, "", "192.0.2.1:80")
	require.NoError(t, err)
	defer ends.Close()
	stays, _, err := dial(s.lan, "", "192.0.2.1:81")
	require.NoError(t, err)
	defer stays.Close()
	other, _, err := dial(s.lan, "192.168.1.3:0", "192.0.2.1:80")
	require.NoError(t, err)
	defer other.Close()
	c.Firewall = []rest.FirewallRule{
		{Name: "web", Src: "lan", Dest: "wan", SrcIP: "192.168.1.2", Proto: "tcp", DestPort: "80", Target: "REJECT"},
	}
	s.apply(c)
	_ = ends.SetDeadline(time.Now().Add(10 * time.Second))
	_, _ = ends.Write([]byte("x"))
	_, err = ends.Read(make([]byte, 1))
	require.ErrorContains(t, err, "reset")
	alive(t, stays)
	alive(t, other)
}
