// Package keys holds a cluster's key pair and derives from two clusters' keys
// the secret they share. It is not a cable: what the secret is used for is up to
// the drivers. It does no I/O, and nothing it returns prints a secret.
//
// Each cluster makes its X25519 key pair when it joins; the private key stays in
// that cluster, the public one is in Cluster.spec.public_key. With them a broker
// that is read by somebody else gives away no cable, and a member cannot
// compute the secret of two others, although all know the pre-shared key.
package keys

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
)

// Size is the size of either half of a key pair, and of a pair key, in bytes.
const Size = 32

// PrivateKey is a cluster's X25519 private key. The zero PrivateKey is none.
type PrivateKey struct{ key *ecdh.PrivateKey }

// PublicKey is a cluster's X25519 public key. Two are the same key if they are ==.
type PublicKey struct{ key [Size]byte }

// Generate makes a new key pair.
func Generate() (PrivateKey, error) {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return PrivateKey{}, fmt.Errorf("making a cluster key: %w", err)
	}
	return PrivateKey{key}, nil
}

// ParsePrivate is the inverse of PrivateKey.Bytes.
func ParsePrivate(b []byte) (PrivateKey, error) {
	if len(b) != Size {
		return PrivateKey{}, fmt.Errorf("reading a private cluster key: %d bytes, not %d", len(b), Size)
	}
	key, err := ecdh.X25519().NewPrivateKey(b)
	if err != nil {
		return PrivateKey{}, errors.New("reading a private cluster key: not a key of X25519")
	}
	return PrivateKey{key}, nil
}

// Bytes returns the key itself, to be stored in a Secret.
func (k PrivateKey) Bytes() []byte {
	if k.key == nil {
		return nil
	}
	return k.key.Bytes()
}

// Public returns the other half.
func (k PrivateKey) Public() PublicKey {
	var p PublicKey
	if k.key != nil {
		copy(p.key[:], k.key.PublicKey().Bytes())
	}
	return p
}

// Format makes every verb print the same thing, which is not the key.
func (k PrivateKey) Format(f fmt.State, _ rune) { _, _ = fmt.Fprint(f, k.String()) }

// String names the public half.
func (k PrivateKey) String() string {
	if k.key == nil {
		return "no key"
	}
	return "private key of " + k.Public().String()
}

// MarshalText keeps encoders and log handlers from seeing the key.
func (k PrivateKey) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// ParsePublic is the inverse of PublicKey.String.
func ParsePublic(s string) (PublicKey, error) {
	b, err := base64.StdEncoding.Strict().DecodeString(s)
	if err != nil || len(b) != Size {
		return PublicKey{}, fmt.Errorf("cluster key %.64q is not the base64 of %d bytes", s, Size)
	}
	return PublicKey{[Size]byte(b)}, nil
}

// String returns the base64 of the key, as in Cluster.spec.public_key.
func (k PublicKey) String() string { return base64.StdEncoding.EncodeToString(k.key[:]) }
