//go:build linux

package kernel

import (
	"fmt"
	"strings"
	"testing"

	"subctl/dataplane"

	"github.com/stretchr/testify/require"
)

// A change of rules also replaces the sets to which packets add elements, and no others. An older
// agent gave them a size, and with it a hash table that the kernel goes through every second.
func TestAntispoofMakesSetsOfPacketsAnew(t *testing.T) {
	ns, h := node(t, dataplane.GatewayOwner)
	handles := func() map[string]string {
		out := map[string]string{}
		for line := range strings.Lines(ns.Run("nft -a list table ip " + dataplane.GatewayOwner.Antispoof)) {
			var name, handle string
			if _, err := fmt.Sscanf(strings.TrimSpace(line), "set %s { # handle %s", &name, &handle); err == nil {
				out[name] = handle
			}
		}
		return out
	}
	a := antispoof()
	settle(t, ns, h, state(t, a))
	before := handles()
	require.Contains(t, before, dataplane.AntispoofSetInner)
	a.Ports = append(a.Ports, 4509)
	require.Len(t, settle(t, ns, h, state(t, a)), 1)
	for name, handle := range handles() {
		anew := name == dataplane.AntispoofSetKnown || name == dataplane.AntispoofSetWays ||
			name == dataplane.AntispoofSetEchoes
		require.Equal(t, anew, handle != before[name], "set %s", name)
	}
	require.Empty(t, dataplane.Diff(look(t, ns, h), state(t, a)))
}
