package mesh

import (
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"

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
		{name: "nobody answered", path: natdiscovery.Path{Done: true}, address: "10.89.2.11"},
		{name: "private", path: natdiscovery.Path{Done: true, Address: netip.MustParseAddr("10.89.2.11"), MTU: 1400}, address: "10.89.2.11"},
		{name: "learned", path: natdiscovery.Path{Done: true, Address: netip.MustParseAddr("198.51.100.1"), NAT: true, InboundOnly: true}, address: "198.51.100.1", inboundOnly: true, refused: "is behind NAT"},
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
				require.Len(t, m.Refused(), 1)
				require.ErrorContains(t, m.Refused()[0].Err, test.refused)
			} else {
				require.Empty(t, m.Refused())
			}
		})
	}
}
