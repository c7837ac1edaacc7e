package cable

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/dataplane"
)

// Networks of clusters are sorted, and none contains another. Barred networks that overlap those of a cluster
// are left out, on either side of it.
func TestClusterNets(t *testing.T) {
	p := netip.MustParsePrefix
	of := func(cluster string, nets ...string) (out []dataplane.ClusterNet) {
		for _, n := range nets {
			out = append(out, dataplane.ClusterNet{Net: p(n), Cluster: cluster})
		}
		return out
	}
	all := append(of("west", "10.2.0.0/16", "10.2.0.0/16", "172.18.0.3/32"), of("north", "10.8.0.0/14", "10.4.0.0/16")...)
	barred := []netip.Prefix{p("10.9.0.0/16"), p("10.0.0.0/13"), p("10.3.0.0/16"), p("10.3.4.0/24"), p("10.4.0.0/15")}
	want := append(of("west", "10.2.0.0/16"), of("", "10.3.0.0/16")...)
	want = append(append(want, of("north", "10.4.0.0/16", "10.8.0.0/14")...), of("west", "172.18.0.3/32")...)
	require.Equal(t, want, clusterNets(all, barred))
	require.Empty(t, clusterNets(nil, nil))
}

// Packets may be forwarded to a cable from all networks of this cluster: a gateway whose cable is down hands over answers of exported Services,
// whose source it has translated back to a global address.
func TestForwardedToCables(t *testing.T) {
	p := netip.MustParsePrefix
	c := Cabling{Local: Local{Pods: []netip.Prefix{p("10.1.0.0/16")}, Svcs: []netip.Prefix{p("10.96.0.0/12")}, Global: []netip.Prefix{p("242.1.0.0/16")}}}
	a := c.antispoof(dataplane.State{}, nil, nil, nil)
	require.Equal(t, []netip.Prefix{p("10.1.0.0/16"), p("10.96.0.0/12"), p("242.1.0.0/16")}, a.Local)
}
