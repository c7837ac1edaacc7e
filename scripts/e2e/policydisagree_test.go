//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// One end of a pair comes to require encryption and drops its cable, while the other end cannot
// hear of it, as the broker cannot be reached. Both report that the pair has no cable, and the
// other end stops sending. When it can hear of it, and encryption is no longer required, the pair
// is connected again.
func TestEndsDisagree(t *testing.T) {
	takesLong(t)
	const pair = "cluster1 cluster2"
	require.Equal(t, "vxlan", wanted[pair])
	encryption := func(value string) {
		kubectl(t, "cluster1", "-n", "submariner-operator", "patch", "submariner", "submariner", "--type=merge", "-p",
			`{"spec":{"encryption":`+value+`}}`)
	}
	from := podOn(t, "cluster2", "web", worker(t, "cluster2"))
	to := podOn(t, "cluster1", "web", worker(t, "cluster1"))
	answers(t, from, to)
	t.Cleanup(func() {
		encryption("null")
		must(t, "lab", "heal", "cluster2", "cluster1-api")
		cabled(t, wanted)
		answers(t, from, to)
	})
	must(t, "lab", "cut", "cluster2", "cluster1-api")
	encryption(`"required"`)
	took := eventually(t, 30*time.Second, func() error {
		cs, _ := connections(t)
		return each(cs, pair, func(c connection) bool {
			why := "requires encryption, but"
			if c.Cluster == "cluster2" {
				why = "no traffic is sent until the cable answers, as the other end may use another one. Likely cause: "
			}
			return c.Status == "error" && strings.Contains(c.StatusMessage, why)
		})
	})
	t.Logf("both ends report it after %.1f s", took.Seconds())
	stop := watchForClear(t, from, to)
	out, err := from.try("get", "http://"+to.ip+":8080/", "--timeout", "2s")
	require.Error(t, err, out)
	seen := stop()
	require.False(t, seen.inCables, "packets in an unencrypted cable")
	require.Empty(t, seen.outside, "packets outside of any cable")

	encryption("null")
	back := eventually(t, 30*time.Second, func() error {
		out, err := from.try("get", "http://"+to.ip+":8080/", "--timeout", "1s")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	t.Logf("traffic is back %.1f s after both ends have the cable again, without the broker", back.Seconds())
}
