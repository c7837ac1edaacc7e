package cable

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A gateway gives its own address to connections to Services only where replies may reach another
// gateway.
func TestSourcesOfServices(t *testing.T) {
	p := netip.MustParsePrefix
	node := func(name, ip, pods string) Node {
		n := Node{Name: name, IP: netip.MustParseAddr(ip)}
		if pods != "" {
			n.Pods = p(pods)
		}
		return n
	}
	a := node("a", "172.18.1.11", "")
	b := node("b", "172.18.1.12", "")
	w := node("w", "172.18.1.13", "")
	standby := b
	draining := b
	standby.Drain = Standby
	draining.Drain = Draining
	known := []Node{
		node("a", "172.18.1.11", "10.1.1.0/24"),
		node("b", "172.18.1.12", "10.1.2.0/24"),
		node("w", "172.18.1.13", "10.1.3.0/24"),
	}
	global := Networks{Pods: []netip.Prefix{p("10.1.0.0/16")}, Global: []netip.Prefix{p("242.1.0.0/16")}}
	plain := Networks{Pods: global.Pods}
	for name, c := range map[string]struct {
		in   Intra
		want bool
		here netip.Prefix
	}{
		"two gateways":    {in: Intra{Self: a, Gateways: []Node{a, b}, Workers: []Node{w}, Local: plain}, want: true},
		"without workers": {in: Intra{Self: a, Gateways: []Node{a, b}, Local: plain}, want: true},
		"the other one is draining": {
			in: Intra{Self: a, Gateways: []Node{a, draining}, Workers: []Node{w}, Local: plain}, want: true,
		},
		"the other one is a standby": {
			in: Intra{Self: a, Gateways: []Node{a, standby}, Workers: []Node{w}, Local: plain}, want: true,
		},
		"one gateway": {in: Intra{Self: a, Gateways: []Node{a}, Workers: []Node{w}, Local: plain}},
		"a worker":    {in: Intra{Self: w, Gateways: []Node{a, b}, Local: plain}},
		"global networks": {
			in:   Intra{Self: a, Gateways: []Node{a, b}, Workers: []Node{w}, Local: global},
			want: true,
		},
		"all networks are known": {
			in: Intra{Self: known[0], Gateways: known[:2], Workers: known[2:], Local: plain},
		},
		"only that of a worker is not": {
			in:   Intra{Self: known[0], Gateways: known[:2], Workers: []Node{w}, Local: plain},
			want: true,
			here: known[0].Pods,
		},
		"only that of a gateway is not": {
			in:   Intra{Self: known[0], Gateways: []Node{known[0], b}, Workers: known[2:], Local: plain},
			want: true,
			here: known[0].Pods,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := c.in.sources([]netip.Prefix{p("10.2.0.0/16")})
			require.Equal(t, c.want, s.masquerades)
			require.Equal(t, c.here, s.podNetwork)
			require.Equal(t, c.want, strings.Contains(s.table().String(), "ct status dnat oifname"))
		})
	}
}
