//go:build linux

package kernel

import (
	"testing"

	"subctl/dataplane/kernel/strongswan"

	"github.com/stretchr/testify/require"
)

// Every problem of a tunnel has a message for people, which begins with the name of the
// notification, if there is one, and names the settings to change.
func TestProblemMessages(t *testing.T) {
	for p, want := range map[strongswan.Problem]string{
		strongswan.WrongKey:      `^AUTHENTICATION_FAILED: .* gw1 and gw2 `,
		strongswan.NoKey:         `^AUTHENTICATION_FAILED: .* no key for`,
		strongswan.Refused:       `^NO_PROPOSAL_CHOSEN: .* espProposals`,
		strongswan.NoProposal:    `^NO_PROPOSAL_CHOSEN: .* espProposals`,
		strongswan.NoCipher:      `cannot encrypt`,
		strongswan.OtherNetworks: `^TS_UNACCEPTABLE: .* other networks`,
		strongswan.NoAnswer:      `no answer`,
		"":                       `^$`,
	} {
		require.Regexp(t, want, tell(p, [2]string{"gw1", "gw2"}))
	}
	require.Len(t, problems, 7)
}
