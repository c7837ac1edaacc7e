//go:build e2e

package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Without policies everything is as it was.
func TestH1DeletePolicies(t *testing.T) {
	out, err := sh("subctl", "cable-policy", "delete", "--context", "cluster1", "--name", "secret")
	require.Error(t, err, "it is cluster2's: %s", out)
	require.Contains(t, must(t, "subctl", "cable-policy", "delete", "--context", "cluster2", "--name", "secret"), "vxlan", "it says what decides then")
	must(t, "subctl", "cable-policy", "delete", "--context", "cluster1", "--name", "to-three")
	cabled(t, map[string]string{"cluster1 cluster2": "vxlan", "cluster1 cluster3": "vxlan", "cluster2 cluster3": "vxlan"})
	connected(t)
}
