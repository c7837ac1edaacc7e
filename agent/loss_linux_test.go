package agent

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/internal/measure"
)

// While every node loses 2 % of what it receives, at random, no agent of two clusters with two
// gateways each finds a gateway, or a node, to be down. "make bench" waits for 10 minutes. While
// they lose almost everything, agents do.
func TestRandomLoss(t *testing.T) {
	span := 15 * time.Second
	bench := os.Getenv(measure.File) != ""
	if bench {
		span = 10 * time.Minute
	}
	fabric := newFabric(t)
	east := twoGateways(t, fabric, 1, "east")
	west := twoGateways(t, fabric, 2, "west")
	east.sync(t, west)
	west.sync(t, east)
	all, _, _ := watchBoth(t, east, west)
	lose := func(percent string) {
		for _, s := range []*side{east, west} {
			for _, node := range s.nodes {
				node.Run(`nft -f - <<X
table ip loss
delete table ip loss
table ip loss { chain x { type filter hook prerouting priority -400; iifname eth0 numgen random mod 100 < ` + percent +
					` counter drop; }; }
X`)
			}
		}
	}
	require.Zero(t, all.downs.Load(), "before anything is lost")
	lose("2")
	end := time.Now().Add(span)
	all.follow(func() bool { return time.Now().After(end) }, 2*span)
	removed := float64(all.downs.Load())
	for _, s := range []*side{east, west} {
		for name, node := range s.nodes {
			require.NotContains(t, node.Run("nft list table ip loss"), "packets 0 ", "node %s of %s loses packets",
				name, s.id)
		}
	}
	if bench {
		measure.Record(t, measure.AtMost("false removals in 10 minutes at 2 % loss", measure.Values{removed}, 0, ""))
	}
	require.Zero(t, removed, "targets found to be down")
	lose("90")
	all.follow(func() bool { return all.downs.Load() > 0 }, 10*time.Second)
}
