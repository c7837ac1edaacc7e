//go:build linux

package strongswan

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Messages of charon about a tunnel that does not come up are problems; other messages are not.
func TestProblem(t *testing.T) {
	for log, want := range map[string]Problem{
		"received AUTHENTICATION_FAILED notify error":                               WrongKey,
		"tried 1 shared key for 'gw1' - 'gw2', but MAC mismatched":                  WrongKey,
		"no shared key found for 'gw1' - 'gw3'":                                     NoKey,
		"no trusted ECDSA public key found for 'CN=edge'":                           Untrusted,
		"signature validation failed, looking for another key":                      Untrusted,
		"constraint checking failed":                                                Untrusted,
		"error installing route with policy 10.1.0.0/25 === 10.2.0.0/24 out":        NoAddress,
		"received NO_PROPOSAL_CHOSEN notify, no CHILD_SA built":                     Refused,
		"no acceptable proposal found":                                              NoProposal,
		"unable to install inbound and outbound IPsec SA (SAD) in kernel":           NoCipher,
		"received TS_UNACCEPTABLE notify, no CHILD_SA built":                        OtherNetworks,
		"giving up after 6 retransmits":                                             NoAnswer,
		"IKE_SA to-gw2[1] established between 192.0.2.1[gw1]...192.0.2.2[gw2]":      "",
		"closing IKE_SA due CHILD_SA setup failure":                                 "",
		"received DELETE for IKE_SA to-gw2[2]":                                      "",
		"sending keep alive to 192.0.2.2[4500], after it has been silent for a bit": "",
	} {
		require.Equal(t, want, problem(log), log)
	}
}
