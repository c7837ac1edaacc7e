package trust

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"fmt"
)

// Key is a private Ed25519 key, which signs. The zero Key contains no key. It is never
// printed.
type Key struct{ private ed25519.PrivateKey }

// PublicKey verifies the signatures of a Key. PublicKeys are comparable with ==; the zero
// PublicKey verifies nothing.
type PublicKey struct{ key [ed25519.PublicKeySize]byte }

// NewKey returns a new random key.
func NewKey() (Key, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return Key{}, fmt.Errorf("generating a signing key: %w", err)
	}
	return Key{private}, nil
}

// newSecret returns a new random secret.
func newSecret() (secret digest) {
	rand.Read(secret[:]) // never fails
	return secret
}

// ParseKey parses the result of Key.Seed.
func ParseKey(seed []byte) (Key, error) {
	if len(seed) != ed25519.SeedSize {
		return Key{}, fmt.Errorf("reading a signing key: %d bytes, not %d", len(seed), ed25519.SeedSize)
	}
	return Key{ed25519.NewKeyFromSeed(seed)}, nil
}

// IsZero reports whether k contains no key.
func (k Key) IsZero() bool { return k.private == nil }

// Seed returns the 32 bytes of the key, for a Secret or a join file; nil for the zero Key.
func (k Key) Seed() []byte {
	if k.private == nil {
		return nil
	}
	return k.private.Seed()
}

// Public returns the public half of k.
func (k Key) Public() PublicKey {
	var p PublicKey
	if k.private != nil {
		copy(p.key[:], k.private.Public().(ed25519.PublicKey))
	}
	return p
}

// Format implements fmt.Formatter. It prints String for every verb, so that no verb prints
// the key.
func (k Key) Format(f fmt.State, _ rune) { _, _ = fmt.Fprint(f, k.String()) }

// String returns a description with the public key, never the private key.
func (k Key) String() string {
	if k.private == nil {
		return "no key"
	}
	return "signing key of " + k.Public().String()
}

// MarshalText implements encoding.TextMarshaler. It returns String, so that encoders and log
// handlers do not print the key.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// ParsePublic parses the result of PublicKey.String.
func ParsePublic(s string) (PublicKey, error) {
	var p PublicKey
	err := p.UnmarshalText([]byte(s))
	return p, err
}

// IsZero reports whether p is no key.
func (p PublicKey) IsZero() bool { return p == PublicKey{} }

// String returns the key in base64; "" for the zero PublicKey.
func (p PublicKey) String() string {
	if p.IsZero() {
		return ""
	}
	return base64.StdEncoding.EncodeToString(p.key[:])
}

// MarshalText implements encoding.TextMarshaler.
func (p PublicKey) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *PublicKey) UnmarshalText(text []byte) error {
	b, err := base64.StdEncoding.Strict().DecodeString(string(text))
	if err != nil || len(b) != ed25519.PublicKeySize {
		return fmt.Errorf("signing key %.64q is not the base64 of %d bytes", text, ed25519.PublicKeySize)
	}
	p.key = [ed25519.PublicKeySize]byte(b)
	return nil
}
