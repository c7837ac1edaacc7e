package cmd

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Commands for a broker name the remedy where there is none.
func TestNoBroker(t *testing.T) {
	for _, args := range [][]string{{"revoke", "east"}, {"revoke", "--join-files"}} {
		got := runIn(t, world{"west": nil}, []string{"west"}, append(args, "--context", "west")...)
		require.Equal(t, result{code: exitFailed, stderr: "Error: this cluster has no broker in namespace submariner-k8s-broker: " +
			"specify the cluster of the broker with --context, and its namespace with --namespace\n"}, got)
	}
}
