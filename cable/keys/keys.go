// Package keys holds a cluster's key pair, and derives the shared secret of two clusters
// from their keys. Drivers decide how to use the secret. The package does no I/O, and no
// value that it returns prints a secret.
//
// Each cluster generates its X25519 key pair when it joins. The private key stays in
// the cluster; the public key is in Cluster.spec.public_key. Therefore the content of the
// broker does not reveal the key of a cable, and a member cannot
// compute the secret of two other members, although all have the pre-shared key.
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

// PrivateKey is a cluster's X25519 private key. The zero PrivateKey contains no key.
type PrivateKey struct{ key *ecdh.PrivateKey }

// PublicKey is a cluster's X25519 public key. PublicKeys are comparable with ==.
type PublicKey struct{ key [Size]byte }

// Generate returns a new random key pair.
func Generate() (PrivateKey, error) {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return PrivateKey{}, fmt.Errorf("generating a cluster key: %w", err)
	}
	return PrivateKey{key}, nil
}

// ParsePrivate parses the result of PrivateKey.Bytes.
func ParsePrivate(b []byte) (PrivateKey, error) {
	if len(b) != Size {
		return PrivateKey{}, fmt.Errorf("reading a private cluster key: %d bytes, not %d", len(b), Size)
	}
	key, err := ecdh.X25519().NewPrivateKey(b)
	if err != nil {
		return PrivateKey{}, errors.New("reading a private cluster key: not an X25519 key")
	}
	return PrivateKey{key}, nil
}

// Bytes returns the Size bytes of the key, for a Secret; nil for the zero PrivateKey.
func (k PrivateKey) Bytes() []byte {
	if k.key == nil {
		return nil
	}
	return k.key.Bytes()
}

// Public returns the public key of k.
func (k PrivateKey) Public() PublicKey {
	var p PublicKey
	if k.key != nil {
		copy(p.key[:], k.key.PublicKey().Bytes())
	}
	return p
}

// Format implements fmt.Formatter. It prints String for every verb, so that no verb prints the key.
func (k PrivateKey) Format(f fmt.State, _ rune) { _, _ = fmt.Fprint(f, k.String()) }

// String returns a description with the public key, never the private key.
func (k PrivateKey) String() string {
	if k.key == nil {
		return "no key"
	}
	return "private key of " + k.Public().String()
}

// MarshalText implements encoding.TextMarshaler. It returns String, so that encoders and log
// handlers do not print the key.
func (k PrivateKey) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// ParsePublic parses the result of PublicKey.String.
func ParsePublic(s string) (PublicKey, error) {
	b, err := base64.StdEncoding.Strict().DecodeString(s)
	if err != nil || len(b) != Size {
		return PublicKey{}, fmt.Errorf("cluster key %.64q is not the base64 of %d bytes", s, Size)
	}
	return PublicKey{[Size]byte(b)}, nil
}

// String returns the key in base64, as in Cluster.spec.public_key.
func (k PublicKey) String() string { return base64.StdEncoding.EncodeToString(k.key[:]) }
