package trust

import "fmt"

// Revocation makes all grants and invitations of a cluster void that were signed until Serial.
type Revocation struct {
	Cluster string `json:"cluster"`
	// Set is the clusterset in which they are void; empty: everywhere.
	Set    string `json:"set,omitempty"`
	Serial int64  `json:"serial"` // milliseconds since 1970
}

// SignRevocation signs a revocation with the administrator's key.
func (k Key) SignRevocation(r Revocation) (string, error) { return k.sign(typeRevocation, r) }

// Revocation verifies a revocation with the administrator's public key.
func (p PublicKey) Revocation(token string) (Revocation, error) {
	var r Revocation
	if err := p.verify(typeRevocation, token, &r); err != nil {
		return Revocation{}, fmt.Errorf("the revocation is not valid: %w", err)
	}
	return r, nil
}

// Revokes reports whether a revocation makes a grant void everywhere: one that was signed until
// then, or with an invitation that was.
func (r Revocation) Revokes(g Grant) bool {
	return r.Set == "" && g.Cluster == r.Cluster && g.Authority() <= r.Serial
}

// Covers reports whether a revocation makes at least those grants void that another one makes void.
func (r Revocation) Covers(other Revocation) bool {
	return r.Cluster == other.Cluster && (r.Set == "" || r.Set == other.Set) && r.Serial >= other.Serial
}
