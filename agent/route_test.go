package agent

import (
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/dataplane"
)

// While a pair changes from one VNI to another, packets come in by the device of the old
// one, of which no policy speaks any more.
func TestPacketsOfTheOldCableFindTheirNode(t *testing.T) {
	w := newWorld(t, Route{}, "two-clusters")
	facts := w.Facts
	w.Facts = func() (dataplane.Facts, error) {
		f, err := facts()
		f.CableDevices = []string{"subvx-2000"}
		return f, err
	}
	w.run(t)
	require.Contains(t, w.holds(t, dataplane.RouteOwner), "iif subvx-2000 lookup 150")
}
