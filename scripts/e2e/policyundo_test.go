//go:build e2e

package e2e

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// A change that removes encryption is refused, and changes nothing. With --force it is made, and
// --wait returns when all pairs use their new cables; no packet is lost. Without policies
// everything is as it was.
func TestDeletePolicies(t *testing.T) {
	out, err := sh("subctl", "cable-policy", "delete", "--context", "cluster1", "--name", "secret")
	require.Error(t, err, "it is cluster2's: %s", out)
	out, err = sh("subctl", "cable-policy", "delete", "--context", "cluster2", "--name", "secret")
	require.Error(t, err)
	require.Contains(t, out,
		"cluster2 - cluster3: ipsec (secret) → vxlan (default), not encrypted\nnothing was changed")
	cabled(t, wanted)
	control := startControl(t)
	all := startStreams(t, slices.Collect(maps.Keys(wanted))...)
	for cluster, name := range map[string]string{"cluster2": "secret", "cluster1": "to-three"} {
		out := must(t, "subctl", "cable-policy", "delete", "--context", cluster, "--name", name, "--force", "--wait")
		require.Contains(t, out, "vxlan (default)", "it reports what decides then")
		cs, code := connections(t)
		require.Zero(t, code)
		pair := map[string]string{"secret": "cluster2 cluster3", "to-three": "cluster1 cluster3"}[name]
		require.NoError(t,
			each(cs, pair, func(c connection) bool { return c.CableDriver == "vxlan" && c.Status == "connected" }),
			"it waits:\n%s", out)
	}
	ls := all.stop(t)
	byMachine := control.stop(t).Lost
	for pair, l := range ls {
		require.True(t, explains(byMachine, map[string]lost{pair: l}), "%s lost %d packets, and the machine itself %d",
			pair, l.Lost, byMachine)
	}
	cabled(t,
		map[string]string{"cluster1 cluster2": "vxlan", "cluster1 cluster3": "vxlan", "cluster2 cluster3": "vxlan"})
	connected(t)
}
