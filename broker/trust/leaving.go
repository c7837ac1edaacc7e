package trust

import (
	"errors"
	"fmt"
)

// Leaving is the statement that a cluster leaves, signed with its own key. It voids the cluster's
// grant, and all older ones, but no grant that was signed later. It contains the grant, so that
// everyone who knows the administrator's key can verify it, even without having seen the cluster.
type Leaving struct {
	Grant Grant
	Time  int64 // by the clock of who has signed it, in milliseconds since 1970
}

// leaving is a Leaving as it is signed.
type leaving struct {
	Grant string `json:"grant"` // signed; it discloses no clusterset
	Time  int64  `json:"time"`
}

// SignLeaving signs that a cluster leaves. k is the key of the cluster, and grant its signed grant.
func (k Key) SignLeaving(grant string, time int64) (string, error) {
	return k.sign(typeLeaving, leaving{Bare(grant), time})
}

// Leaving verifies that a cluster has left. p is the administrator's key, which verifies the grant;
// the key in the grant verifies the rest.
func (p PublicKey) Leaving(token string) (Leaving, error) {
	var claimed, signed leaving
	if err := peek(token, &claimed); err != nil { // only to find the grant; verified below
		return Leaving{}, fmt.Errorf("the leaving statement is not valid: %w", err)
	}
	g, err := p.Grant(claimed.Grant)
	if err == nil {
		err = g.Key.verify(typeLeaving, token, &signed)
	}
	if err == nil && signed.Time <= 0 {
		err = errors.New("it has no time")
	}
	if err != nil {
		return Leaving{}, fmt.Errorf("the leaving statement is not valid: %w", err)
	}
	return Leaving{g, signed.Time}, nil
}
