package cable

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	submarinerv1 "subctl/api/submariner/v1"
)

func TestMissing(t *testing.T) {
	text := FormatMissing(
		map[string]string{"ipsec": "no ESP\nhere", "vxlan+ipsec": "no ESP\nhere", "vxlan+wireguard": "not listed"})
	require.Equal(t, "ipsec: no ESP here\nvxlan+wireguard: not listed", text)
	g, _ := Parse(submarinerv1.EndpointSpec{ClusterID: "west", BackendConfig: map[string]string{
		submarinerv1.BackendDrivers: "vxlan,wireguard", submarinerv1.BackendMissing: text,
	}})
	for driver, want := range map[string]string{
		"ipsec":           "cluster west does not offer ipsec: no ESP here",
		"vxlan+ipsec":     "cluster west does not offer vxlan+ipsec: no ESP here",
		"vxlan+wireguard": "cluster west does not offer vxlan+wireguard: not listed",
		"gre":             "cluster west does not offer gre",
	} {
		require.EqualError(t, g.NotOffered(driver), want)
	}
	require.Empty(t, FormatMissing(nil))
}

// The text comes from another cluster.
func TestHostileMissing(t *testing.T) {
	require.Empty(t, parseMissing("\n\n: \nno colon\n"+strings.Repeat("x", 300)+": why"))
	got := parseMissing(
		"IPsec: \x1b[2J" + strings.Repeat("é", 300) + "\nlibreswan: second\n" + strings.Repeat("a: b\n", 100))
	require.Equal(t, "second", got["ipsec"], "the last one counts")
	require.LessOrEqual(t, len(parseMissing("a: \x1b[2J" + strings.Repeat("é", 300))["a"]), maxReason+4)
	require.NotContains(t, parseMissing("a: \x1b[2J")["a"], "\x1b")
	var many strings.Builder
	for i := range 100 {
		many.WriteString("d" + strings.Repeat("x", i) + ": why\n")
	}
	require.Len(t, parseMissing(many.String()), maxMissing)
}
