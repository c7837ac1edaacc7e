//go:build linux

package ike

import (
	"time"

	"subctl/dataplane"
	"subctl/dataplane/kernel/strongswan"
)

// CableStates returns the states of the IPsec tunnels.
func (s *IPsec) CableStates() (out []dataplane.CableState, err error) {
	if _, ok := s.charon.Running(); !s.owned || !ok {
		return nil, nil
	}
	conns, sas, err := s.charon.Tunnels()
	if err != nil {
		return nil, err
	}
	now := time.Now()
	for name, conn := range conns {
		st := dataplane.CableState{Device: dataplane.IPsecDevice, Peer: name}
		if conn.Transport {
			st.Device = dataplane.VXLANIPsecDevice
		}
		for _, sa := range sas[name] {
			for _, child := range sa.Children {
				if at := now.Add(-child.Age); child.Up && at.After(st.Handshake) {
					st.Handshake = at
				}
				st.Up = st.Up || child.Up
				st.Rx, st.Tx = st.Rx+child.In, st.Tx+child.Out
			}
		}
		if !strongswan.Current(sas[name], conn.Child) {
			st.Message = tell(s.charon.Problem(name), conn.IDs)
		}
		out = append(out, st)
	}
	return out, nil
}

// problems are the messages for people about what keeps a tunnel from coming up.
var problems = map[strongswan.Problem]string{
	strongswan.WrongKey:      "AUTHENTICATION_FAILED: the pair key differs",
	strongswan.NoKey:         "AUTHENTICATION_FAILED: this gateway has no key for the identity of the other side",
	strongswan.Refused:       "NO_PROPOSAL_CHOSEN: the other side does not know this gateway yet, or accepts none of its proposals: specify a common proposal in ikeProposals and espProposals",
	strongswan.NoProposal:    "NO_PROPOSAL_CHOSEN: this gateway accepts none of the other side's proposals: specify a common proposal in ikeProposals and espProposals",
	strongswan.NoCipher:      "this node cannot encrypt with the negotiated cipher: specify another one in espProposals, such as the default",
	strongswan.OtherNetworks: "TS_UNACCEPTABLE: the other side expects other networks in this tunnel",
	strongswan.NoAnswer:      "no answer from the other side: check that its UDP port is reachable, and that its IPsec is running",
}

// tell returns the message for people about a problem of the tunnel between two identities.
func tell(p strongswan.Problem, ids [2]string) string {
	if p != strongswan.WrongKey {
		return problems[p]
	}
	return problems[p] + ": " + ids[0] + " and " + ids[1] +
		" have different keys: both clusters must be joined with the same join file, and know each other's present public key"
}
