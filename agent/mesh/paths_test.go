package mesh_test

import (
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"

	. "subctl/agent/mesh"
	"subctl/agent/role"
	"subctl/cable/natdiscovery"
	"subctl/internal/kubetest"
)

// What path discovery found is what a cable is made by; that it made the driver refuse
// the gateway is no reason to stop looking for it.
func TestPathsDecide(t *testing.T) {
	const name = "submariner-cable-west-10-89-2-11"
	a, err := txtar.ParseFile(filepath.Join("../../testdata/scenarios", "two-clusters.txtar"))
	require.NoError(t, err)
	for _, test := range []struct {
		name        string
		path        natdiscovery.Path
		address     string
		inboundOnly bool
		refused     string
	}{
		{name: "not known yet", address: "10.89.2.11"},
		{
			name:    "nobody answered",
			path:    natdiscovery.Path{Done: true},
			address: "10.89.2.11",
			refused: "has not answered",
		},
		{
			name:    "private",
			path:    natdiscovery.Path{Done: true, Address: netip.MustParseAddr("10.89.2.11"), MTU: 1400},
			address: "10.89.2.11",
		},
		{
			name: "learned",
			path: natdiscovery.Path{
				Done:        true,
				Address:     netip.MustParseAddr("198.51.100.1"),
				NAT:         true,
				InboundOnly: true,
			},
			address:     "198.51.100.1",
			inboundOnly: true,
			refused:     "is behind NAT",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := snapshotOf(kubetest.Decode(t, a)...)
			s.Paths = map[string]natdiscovery.Path{name: test.path}
			m, err := Of(s)
			require.NoError(t, err)
			require.Len(t, m.Accepted.Peers, 1)
			p := m.Accepted.Peers[0]
			require.Equal(t, test.address, p.Address.String())
			require.Equal(t, test.path.NAT, p.NATed)
			require.Equal(t, test.path.MTU, p.MTU)
			require.Equal(t, test.inboundOnly, p.InboundOnly)
			if test.refused != "" {
				require.Len(t, m.Cables.Refused, 1)
				require.ErrorContains(t, m.Cables.Refused[0].Err, test.refused)
			} else {
				require.Empty(t, m.Cables.Refused)
			}
		})
	}
}

// A cable without encryption is made only to an address at which the gateway has answered: whoever
// has another address that the gateway announces would be sent clear text. A pair loses nothing by
// that: an encrypted cable stays, and an agent that is restarted keeps its cables.
func TestHostileAddressIsNotGuessed(t *testing.T) {
	const name = "submariner-cable-west-10-89-2-11"
	private := netip.MustParseAddr("10.89.2.11")
	a, err := txtar.ParseFile(filepath.Join("../../testdata/scenarios", "two-clusters.txtar"))
	require.NoError(t, err)
	plain := map[string]role.Using{name: {Cluster: "west", Driver: "vxlan", Device: "vxlan-tunnel"}}
	for _, test := range []struct {
		name    string
		path    natdiscovery.Path
		memory  role.Memory
		waiting bool
		refused bool
	}{
		{name: "no answer yet", waiting: true},
		{name: "no answer", path: natdiscovery.Path{Done: true}, refused: true},
		{name: "an answer", path: natdiscovery.Path{Done: true, Address: private}},
		{
			name:   "restarted",
			memory: role.Memory{Using: plain, Paths: map[string]natdiscovery.Path{name: {Address: private, MTU: 1400}}},
		},
		{
			name:   "restarted, and no answer",
			path:   natdiscovery.Path{Done: true},
			memory: role.Memory{Using: plain, Paths: map[string]natdiscovery.Path{name: {Address: private}}},
		},
		{
			name: "restarted, with an address that is not announced any more", waiting: true,
			memory: role.Memory{
				Using: plain,
				Paths: map[string]natdiscovery.Path{name: {Address: netip.MustParseAddr("192.0.2.9")}},
			},
		},
		{
			name:    "an old path without a cable",
			waiting: true,
			memory:  role.Memory{Paths: map[string]natdiscovery.Path{name: {Address: private}}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := snapshotOf(kubetest.Decode(t, a)...)
			s.Paths = map[string]natdiscovery.Path{name: test.path}
			s.Memory = test.memory
			m, err := Of(s)
			require.NoError(t, err)
			require.Equal(t, test.waiting, len(m.Cables.Pending) == 1, "%v", m.Cables.Pending)
			require.Equal(t, test.refused, len(m.Cables.Refused) == 1, "%v", m.Cables.Refused)
			require.Equal(t, !test.waiting && !test.refused, len(m.Cables.Wanted) == 1)
			for _, c := range m.Cables.Wanted {
				require.Equal(t, private, c.Address)
			}
			require.Len(t, m.Accepted.Peers, 1, "it is searched for")
		})
	}
}
