package broker

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
)

// NewPSK is the origin of a newly generated pre-shared key.
const NewPSK = "new"

// PSKSources are the possible sources of a pre-shared key.
type PSKSources struct {
	// From is the file that the user specified, or nil.
	From *JoinFile
	// Existing is the file that will be replaced. It is nil if there is none, or if it
	// cannot be read; Reason is then the error.
	Existing *JoinFile
	Reason   error
	// URL and Namespace are the address and base namespace of the broker.
	URL, Namespace string
}

// ChoosePSK returns the pre-shared key for a broker in state s, and a description of its
// origin. The key of a broker with members cannot change: no cable would come up between
// these members and new ones.
func (s State) ChoosePSK(from PSKSources) (psk Secret, origin string, err error) {
	fingerprint := s.fingerprint()
	switch {
	case from.From != nil:
		if fingerprint != "" && len(s.Members) > 0 && Fingerprint(from.From.PSK) != fingerprint {
			return nil, "", fmt.Errorf("the pre-shared key of the file given with --ipsec-psk-from is not the one that the "+
				"joined clusters use (%s): leave the flag out, or uninstall them first", strings.Join(s.Members, ", "))
		}
		return from.From.PSK, "from the file given with --ipsec-psk-from", nil
	case from.belongs(fingerprint):
		return from.Existing.PSK, "kept from the existing join file", nil
	case len(s.Members) > 0:
		return nil, "", from.lost(s.Members)
	}
	psk = make(Secret, pskSize)
	if _, err := rand.Read(psk); err != nil {
		return nil, "", fmt.Errorf("generating a pre-shared key: %w", err)
	}
	return psk, NewPSK, nil
}

// belongs reports whether the existing file is a file of this broker. A broker without a
// fingerprint is identified by its address.
func (f PSKSources) belongs(fingerprint string) bool {
	if f.Existing == nil {
		return false
	}
	if fingerprint != "" {
		return Fingerprint(f.Existing.PSK) == fingerprint
	}
	return f.Existing.BrokerURL == f.URL && f.Existing.Namespace == f.Namespace
}

func (f PSKSources) lost(members []string) error {
	why := errors.New("there is no join file of this broker here")
	switch {
	case f.Existing != nil:
		why = errors.New("the join file here is of another broker")
	case f.Reason != nil:
		why = f.Reason
	}
	return fmt.Errorf("clusters are joined (%s), and their pre-shared key is needed, but %w: specify a file with "+
		"--ipsec-psk-from, or get the key back from a joined cluster with subctl recover-broker-info",
		strings.Join(members, ", "), why)
}
