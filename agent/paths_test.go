package agent

import (
	"context"
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"

	"subctl/agent/discovery"
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
		path        discovery.Path
		address     string
		inboundOnly bool
		refused     string
	}{
		{name: "not known yet", address: "10.89.2.11"},
		{name: "nobody answered", path: discovery.Path{Done: true}, address: "10.89.2.11"},
		{name: "private", path: discovery.Path{Done: true, Address: netip.MustParseAddr("10.89.2.11"), MTU: 1400}, address: "10.89.2.11"},
		{name: "learned", path: discovery.Path{Done: true, Address: netip.MustParseAddr("198.51.100.1"), NAT: true, InboundOnly: true}, address: "198.51.100.1", inboundOnly: true, refused: "address translation"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := NewSnapshot("gw", submarinerv1.NodeFacts{PrivateIP: "10.89.1.11", MTU: 1500}, true, decode(t, a)...)
			s.Paths = map[string]discovery.Path{name: test.path}
			v, err := newView(s)
			require.NoError(t, err)
			require.Len(t, v.remote, 1)
			p := v.remote[0]
			require.Equal(t, test.address, p.Address.String())
			require.Equal(t, test.path.NAT, p.NATed)
			require.Equal(t, test.path.MTU, p.MTU)
			require.Equal(t, test.inboundOnly, p.InboundOnly)
			if test.refused != "" {
				require.Len(t, v.refused, 1)
				require.ErrorContains(t, v.refused[0].err, test.refused)
			} else {
				require.Empty(t, v.refused)
			}
		})
	}
}

// found is a discovery that has found what a test says.
type found struct {
	discovery.Search
	publicIP netip.Addr
}

func (f *found) Start(context.Context) error      { return nil }
func (f *found) Set(s discovery.Search)           { f.Search = s }
func (f *found) Again(string)                     {}
func (f *found) Paths() map[string]discovery.Path { return nil }
func (f *found) PublicIP(was netip.Addr) netip.Addr {
	if f.publicIP.IsValid() {
		return f.publicIP
	}
	return was
}

// A gateway looks for others while it is the active one, and publishes where it can
// be reached from outside.
func TestGatewayLooksForPaths(t *testing.T) {
	w := newWorld(t, Gateway{}, "two-clusters")
	f := &found{}
	w.paths = f
	w.run(t)
	require.Len(t, f.Peers, 1)
	require.Len(t, f.Cables, 1)

	e := get(t, w, &submarinerv1.Endpoint{}, "east-submariner-cable-east-10-89-1-11")
	require.Empty(t, e.Spec.PublicIP)
	f.publicIP = netip.MustParseAddr("198.51.100.1")
	w.run(t)
	e = get(t, w, e, e.Name)
	require.Equal(t, "198.51.100.1", e.Spec.PublicIP)

	w.paths = &found{} // a restart
	w.run(t)
	require.Equal(t, "198.51.100.1", get(t, w, e, e.Name).Spec.PublicIP)

	w.paths = f
	w.elector.set(following)
	w.run(t)
	require.Empty(t, f.Peers)
}

// Who was refused for what it announces does not keep others from being looked for, nor
// is it looked for itself.
func TestRefusedBarNothing(t *testing.T) {
	w := newWorld(t, Gateway{}, "incumbent")
	f := &found{}
	w.paths = f
	w.run(t)
	require.Len(t, f.Peers, 1)
	require.Len(t, f.Cables, 1)
	require.Equal(t, f.Peers[0].Name, f.Cables[0].Name)
}
