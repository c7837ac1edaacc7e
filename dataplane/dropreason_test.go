package dataplane_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/dataplane"
)

// Every rule that drops packets has a reason, which is explained: of a table of text, in its comment.
func TestDropReasons(t *testing.T) {
	for _, o := range objects() {
		if o, ok := o.(dataplane.Globalnet); ok {
			for _, r := range o.Rules() {
				require.False(t, strings.HasSuffix(r.String(), "drop") &&
					dataplane.DropReason(r.Chain, "") == "", "%s %v", r.Chain, r)
			}
		}
	}
	for comment, reason := range map[string]string{
		"transit #0123456789ab": dataplane.DropTransit, "#0123456789ab": "", "1/2 3 0123456789abcdef": "", "": "",
	} {
		require.Equal(t, reason, dataplane.DropReason("forward", comment), comment)
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
