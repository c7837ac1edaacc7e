package dataplane_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/dataplane"
)

// A rule has the reason for which it drops packets in its comment. Every reason is explained.
func TestDropReasons(t *testing.T) {
	for comment, reason := range map[string]string{
		"transit #0123456789ab": dataplane.DropTransit, "#0123456789ab": "", "1/2 3 0123456789abcdef": "", "": "",
	} {
		require.Equal(t, reason, dataplane.DropReason(comment), comment)
	}
	for rule, reason := range map[string]string{
		"-i submariner -j DROP": dataplane.DropNotAccepted, "-j DROP": dataplane.DropNotAccepted,
		"-o north-+ -j DROP":                 dataplane.DropTransit,
		"-p udp -m udp --dport 4500 -j DROP": dataplane.DropUnknownSender,
		"-p esp -j DROP":                     dataplane.DropUnknownSender,
		"-i vx-submariner -o vx-submariner -m mac --mac-source 02:00:00:00:00:01 -c 0 0 -j DROP": dataplane.DropDetour,
		"-i submariner -j RETURN": "",
	} {
		require.Equal(t, reason, dataplane.ChainDropReason(rule), rule)
		require.True(t, reason == "" || dataplane.DropReasons[reason] != "", reason)
	}
}
