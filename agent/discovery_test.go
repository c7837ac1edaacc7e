package agent

import (
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"

	submarinerv1 "subctl/api/submariner/v1"
)

// What path discovery found is what a cable is made by; that it made the driver refuse
// the gateway is no reason to stop looking for it.
func TestPathsDecide(t *testing.T) {
	const name = "submariner-cable-west-10-89-2-11"
	a, err := txtar.ParseFile(filepath.Join("../testdata/scenarios", "two-clusters.txtar"))
	require.NoError(t, err)
	for _, test := range []struct {
		name        string
		path        Path
		address     string
		unreachable bool
		refused     string
	}{
		{name: "not known yet", address: "10.89.2.11"},
		{name: "nobody answered", path: Path{Done: true}, address: "10.89.2.11"},
		{name: "private", path: Path{Done: true, Address: netip.MustParseAddr("10.89.2.11"), MTU: 1400}, address: "10.89.2.11"},
		{name: "learned", path: Path{Done: true, Address: netip.MustParseAddr("198.51.100.1"), NAT: true, Unreachable: true}, address: "198.51.100.1", unreachable: true, refused: "address translation"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := NewSnapshot("gw", submarinerv1.NodeFacts{PrivateIP: "10.89.1.11", MTU: 1500}, true, decode(t, a)...)
			s.Paths = map[string]Path{name: test.path}
			v, err := newView(s)
			require.NoError(t, err)
			require.Len(t, v.remote, 1)
			p := v.remote[0]
			require.Equal(t, test.address, p.Address.String())
			require.Equal(t, test.path.NAT, p.NATed)
			require.Equal(t, test.path.MTU, p.MTU)
			require.Equal(t, test.unreachable, p.Unreachable)
			if test.refused != "" {
				require.Len(t, v.refused, 1)
				require.ErrorContains(t, v.refused[0].err, test.refused)
			} else {
				require.Empty(t, v.refused)
			}
		})
	}
}

// A gateway looks for others while it is the active one, and publishes where it can
// be reached from outside.
func TestGatewayLooksForWays(t *testing.T) {
	w := newWorld(t, Gateway{}, "two-clusters")
	w.ways = newDiscovery(nil, w.Log, func() {})
	w.public = &publicIP{nudge: func() {}, wake: make(chan struct{}, 1)}
	w.run(t)
	require.Len(t, w.ways.paths(), 1)

	e := get(t, w, &submarinerv1.Endpoint{}, "east-submariner-cable-east-10-89-1-11")
	require.Empty(t, e.Spec.PublicIP)
	for _, way := range w.ways.ways {
		way.seenAs, way.seen, way.looks = netip.MustParseAddr("198.51.100.1"), 2, 2
	}
	w.run(t)
	e = get(t, w, e, e.Name)
	require.Equal(t, "198.51.100.1", e.Spec.PublicIP)

	w.ways = newDiscovery(nil, w.Log, func() {}) // a restart
	w.run(t)
	require.Equal(t, "198.51.100.1", get(t, w, e, e.Name).Spec.PublicIP)

	w.elector.set(following)
	w.run(t)
	require.Empty(t, w.ways.paths())
}
