package cable

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Both ends choose the same driver in place of one that connects to few gateways of a cluster, for
// the same reason.
func TestStandIn(t *testing.T) {
	alone := Gateway{Cluster: "a", TellsSiblings: true}
	several := Gateway{Cluster: "b", TellsSiblings: true, Siblings: true}
	older := Gateway{Cluster: "c"}
	limited := claimant{optioned: testWireGuard, max: 2}
	combined := testCombined
	for _, test := range []struct {
		name  string
		d     Driver
		known []Driver
		x, y  Gateway
		why   string // empty: the driver itself
	}{
		{"no siblings", limited, []Driver{combined}, alone, alone, ""},
		{
			"one has",
			limited,
			[]Driver{combined},
			alone,
			several,
			"wireguard connects to 2 gateways of a cluster, and cluster b has several: vxlan+wireguard is in its place",
		},
		{
			"both have",
			limited,
			[]Driver{combined},
			Gateway{Cluster: "a", TellsSiblings: true, Siblings: true},
			several,
			"wireguard connects to 2 gateways of a cluster, and clusters a and b have several: vxlan+wireguard is in its place",
		},
		{
			"a standby",
			limited,
			[]Driver{combined},
			alone,
			Gateway{Cluster: "b", TellsSiblings: true, Drain: Standby},
			"wireguard connects to 2 gateways of a cluster, and cluster b has several: vxlan+wireguard is in its place",
		},
		{"an older version", limited, []Driver{combined}, older, several, ""},
		{"no limit", combined, []Driver{combined}, alone, several, ""},
		{"no combination", limited, []Driver{limited}, alone, several, ""},
		{"a combination that does not encrypt", encrypting{limited}, []Driver{combined}, alone, several, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, ends := range [][2]Gateway{{test.x, test.y}, {test.y, test.x}} {
				in, why := StandIn(test.d, test.known, ends[0], ends[1])
				require.Equal(t, test.why, why)
				require.Equal(t, test.why != "", in != nil)
			}
		})
	}
}

// encrypting is a driver that encrypts.
type encrypting struct{ claimant }

func (e encrypting) Properties() Properties {
	p := e.claimant.Properties()
	p.Encrypts = true
	return p
}
