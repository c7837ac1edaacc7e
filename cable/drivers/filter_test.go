package drivers_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/cable"
	"subctl/cable/drivers"
	"subctl/dataplane"
)

// A device that a peer can send on is closed: whatever comes in by it and is not asked
// for, in FORWARD and in INPUT, is dropped. That goes for devices too that only carry
// another cable, such as WireGuard under VXLAN.
func TestDevicesAreClosed(t *testing.T) {
	for _, d := range drivers.All() {
		t.Run(d.Name(), func(t *testing.T) {
			s := whole(t, local(1), func(int) cable.Driver { return d }, peers(t, 2))
			for _, o := range s.Sorted() {
				if o.Key().Kind != dataplane.KindLink {
					continue
				}
				dev := o.Key().Name
				for _, chain := range []string{"INPUT", "FORWARD"} {
					text := s[dataplane.Key{Kind: dataplane.KindChain, Name: "filter SUBMARINER-GW-" + chain}].String()
					closed := strings.Contains(text, "-i "+dev+" -j DROP") ||
						// or the chain is left by all but one device, and ends with a drop
						strings.Contains(text, "! -i "+dev+" -j RETURN") && strings.Contains(text, "FORWARD -j DROP\n")
					require.True(t, closed, "%s is open in %s:\n%s", dev, chain, text)
				}
			}
		})
	}
}
