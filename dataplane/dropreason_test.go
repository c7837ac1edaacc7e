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
	for reason, text := range dataplane.DropReasons {
		require.NotEmpty(t, text, reason)
	}
}
