package cnf

import (
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/dataplane"
	"subctl/sdewan/rest"
)

// Two tunnels with the same networks at both ends: the second says so, whatever the spelling.
// Tunnels that share the networks of one end only are fine.
func TestTunnelsWithTheSameNetworks(t *testing.T) {
	remote := func(name, local, other string) rest.Remote {
		return rest.Remote{
			Name: name, Gateway: "192.0.2.9", Auth: "psk", PreSharedKey: "k", RemoteID: name,
			Connections: []rest.Connection{
				{Name: "c", Type: "tunnel", Mode: "start", LocalSubnet: local, RemoteSubnet: other},
			},
		}
	}
	c := rest.Config{Remotes: []rest.Remote{
		remote("a", "192.168.1.0/24", "10.1.0.0/16,10.2.0.0/16"),
		remote("b", "192.168.1.0/24", "10.1.0.0/16"),
		remote("c", "192.168.1.7/24", "10.2.0.0/16, 10.1.0.0/16"),
		remote("d", "192.168.2.0/24", "10.1.0.0/16,10.2.0.0/16"),
	}}
	_, report := Plan(c, World{IPsec: dataplane.Engine{Name: dataplane.EngineKernel}})
	require.Equal(t, "ipsec/remotes c: connection c: connection c of a has the same networks at both ends, "+
		"and only one of the two takes packets: delete one, or change its networks\n", report.String())
}

// A zone does not take a device that is none of the CNF's networks, and says which it is.
func TestZoneOfTheClustersDevice(t *testing.T) {
	_, _, w := scenario(t, "testdata/10-firewall.txtar")
	c := rest.Config{Zones: []rest.Zone{{Name: "z", Network: []string{"eth0", "net9"}}}}
	_, report := Plan(c, w)
	require.Contains(t, report.String(), `"eth0" is no network of the CNF, but another device`)
	require.Contains(t, report.String(), `network "net9" does not exist`)
}
