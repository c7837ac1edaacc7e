//go:build linux

package nft

import (
	"testing"

	"subctl/dataplane"

	"github.com/stretchr/testify/require"
)

// An object counts as read if ours was the only transaction since the table was read.
func TestSeenAfterTransaction(t *testing.T) {
	for _, test := range []struct {
		name              string
		read, now, expect uint32
	}{
		{"ours alone", 7, 8, 8},
		{"somebody else's, too", 7, 9, 7},
		{"ours was not carried out", 7, 7, 7},
		{"it changed while it was read", 0, 1, 0},
		{"no answer", 7, 0, 7},
	} {
		t.Run(test.name, func(t *testing.T) {
			seen := nftSeen{generation: test.read}
			seen.became(dataplane.Ruleset{}, test.now)
			require.Equal(t, test.expect, seen.generation)
			require.Equal(t, test.read != test.expect, len(seen.objects) == 1)
		})
	}
}
