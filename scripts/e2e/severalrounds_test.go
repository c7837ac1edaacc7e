//go:build e2e

package e2e

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/internal/measure"
)

// row has the results of a fault until now.
type row struct {
	fault
	measure.Failover
}

// repeat runs rounds of faults until each fault has so many runs. Every round has all faults, in
// their order: a fault never happens without the faults before it, also if a round is repeated
// because the test was stopped within it. The faults of the first rows then have a run more.
func repeat(rows []*row, runs int, run func(r *row, round int, last bool)) {
	fewest := slices.MinFunc(rows, func(a, b *row) int { return cmp.Compare(a.Runs, b.Runs) })
	for round := fewest.Runs; round < runs; round++ {
		for i, r := range rows {
			run(r, round, i == len(rows)-1)
		}
	}
}

// A test that was stopped after killed-agent, and before killed-node, has both happen again to the
// same gateway.
func TestRepeat(t *testing.T) {
	for _, c := range []struct {
		agent, node int // runs until now
		want        []string
	}{
		{0, 0, []string{"0 killed-agent", "0 killed-node, undo", "1 killed-agent", "1 killed-node, undo"}},
		{1, 0, []string{"0 killed-agent", "0 killed-node, undo", "1 killed-agent", "1 killed-node, undo"}},
		{2, 1, []string{"1 killed-agent", "1 killed-node, undo"}},
		{2, 2, nil},
		{3, 2, nil},
	} {
		var got []string
		rows := []*row{
			{fault{name: "killed-agent"}, measure.Failover{Runs: c.agent}},
			{fault{name: "killed-node"}, measure.Failover{Runs: c.node}},
		}
		repeat(rows, 2, func(r *row, round int, last bool) {
			r.Runs++
			got = append(got, fmt.Sprintf("%d %s%s", round, r.name, map[bool]string{true: ", undo"}[last]))
		})
		require.Equal(t, c.want, got, "%d and %d runs until now", c.agent, c.node)
	}
}

// Neither other cables nor more gateways are measured with a fault that was not undone.
func TestLeftover(t *testing.T) {
	var none *scene
	require.NoError(t, none.leftover())
	require.NoError(t, (&scene{}).leftover())
	require.Error(t, (&scene{suffering: true}).leftover())
	require.Error(t, (&scene{noAPI: true}).leftover())
}
