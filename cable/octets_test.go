package cable

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	submarinerv1 "subctl/api/submariner/v1"
)

// Whatever is taken, a gateway gets octets that are not, those of its private IP if they are free,
// and the same ones each time.
func TestChooseOctets(t *testing.T) {
	ip := netip.MustParseAddr("10.16.1.11")
	require.Equal(t, Octets{16, 1, 11}, ChooseOctets("east", "gw", ip, nil))
	r := rand.New(rand.NewPCG(1, 2))
	taken := map[Octets]bool{{16, 1, 11}: true}
	for n := range 5000 { // gateways that all have the same octets, and start one after the other
		cluster := fmt.Sprint("cluster", n/4)
		node := fmt.Sprint("gw", n%4)
		o := ChooseOctets(cluster, node, ip, taken)
		require.False(t, taken[o])
		require.Equal(t, o, ChooseOctets(cluster, node, ip, taken))
		parsed, err := ParseOctets(o.String())
		require.NoError(t, err)
		require.Equal(t, o, parsed)
		taken[o] = true
		other := Octets{byte(r.Uint32()), byte(r.Uint32()), byte(r.Uint32())}
		if other != o {
			taken[other] = true
		}
	}
	require.NotEqual(t, Octets{}, ChooseOctets("east", "gw", netip.MustParseAddr("10.0.0.0"), nil))
}

func TestParseOctets(t *testing.T) {
	for _, text := range []string{"0.0.1", "16.1.11", "255.255.254", "1.0.0"} {
		o, err := ParseOctets(text)
		require.NoError(t, err)
		require.Equal(t, text, o.String())
	}
	for _, text := range []string{
		"", "0.0.0", "255.255.255", "16.1", "10.16.1.11", "16.1.256", "16.1.-1", "16.01.11", "+16.1.11", " 16.1.11",
		"16.1.11\n", "a.b.c", "1..2", "0x1.1.1",
	} {
		_, err := ParseOctets(text)
		require.Error(t, err, "%q", text)
		g, err := Parse(
			submarinerv1.EndpointSpec{
				PrivateIP:     "10.16.1.11",
				BackendConfig: map[string]string{submarinerv1.BackendOctets: text},
			},
		)
		require.ErrorContains(t, err,
			fmt.Sprintf("its gateway-octets %q is not like 1.2.3, from 0.0.1 to 255.255.254", text))
		_, ok := g.AnnouncedOctets()
		require.False(t, ok)
	}
}

// A gateway has the addresses on devices that it announces or, of an older version, the ones with
// the octets of its private IP.
func TestVTEPOfGateway(t *testing.T) {
	spec := submarinerv1.EndpointSpec{PrivateIP: "10.16.1.11"}
	g, _ := Parse(spec)
	require.Equal(t, "241.16.1.11", g.VTEP(241).String())
	spec.BackendConfig = map[string]string{submarinerv1.BackendOctets: "7.8.9"}
	g, _ = Parse(spec)
	require.Equal(t, "241.7.8.9", g.VTEP(241).String())
}
