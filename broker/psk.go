package broker

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
)

// NewPSK is the origin of a pre-shared key that was made just now.
const NewPSK = "new"

// PSKSources are the places a pre-shared key may come from.
type PSKSources struct {
	// From is the file that the user named, nil if none.
	From *JoinFile
	// Existing is the file that is about to be replaced, nil if there is none that
	// can be read; Reason then says why, if there is one at all.
	Existing *JoinFile
	Reason   error
	// URL and Namespace are those of the broker being deployed.
	URL, Namespace string
}

// ChoosePSK returns the pre-shared key for a broker in state s, and where it is
// from, as words for a person. The key of a broker with members cannot change:
// their cables would not come up with those of new ones.
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
		return nil, "", fmt.Errorf("making a pre-shared key: %w", err)
	}
	return psk, NewPSK, nil
}

// belongs says that the existing file is one of this broker. A broker that does
// not say which key it has is known by its address.
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
	return fmt.Errorf("clusters are joined (%s), and their pre-shared key is needed, but %w: name a file with "+
		"--ipsec-psk-from, or get the key back from a joined cluster with subctl recover-broker-info",
		strings.Join(members, ", "), why)
}
