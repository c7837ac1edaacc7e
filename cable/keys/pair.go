package keys

import (
	"bytes"
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
)

// What a pair key may be for. Keys of different purposes say nothing about each
// other.
const (
	WireGuardPSK = "wireguard-psk"
	IPsecPSK     = "ipsec-psk"
)

// minPSK refuses keys a person typed: deploy-broker makes 48 random bytes.
const minPSK = 16

// PairKey returns the 32 bytes that two clusters share for a purpose, the same at
// both ends: HKDF-SHA256 (RFC 5869) whose key is the X25519 secret of the pair,
// whose salt is the pre-shared key of the join file, and whose info names
// purpose, clusters and public keys, each in byte order and with its length in
// front, so that no two inputs run together.
//
// A public key of low order, which would make the secret known to everybody, is
// refused; so is our own key, which somebody could have sent back to us.
func PairKey(private PrivateKey, remote PublicKey, psk []byte, clusterA, clusterB, purpose string) ([]byte, error) {
	switch {
	case private.key == nil:
		return nil, errors.New("deriving a pair key: this cluster has no key")
	case len(psk) < minPSK:
		return nil, fmt.Errorf("deriving a pair key: the pre-shared key has %d bytes, fewer than %d", len(psk), minPSK)
	case clusterA == "" || clusterB == "" || clusterA == clusterB:
		return nil, fmt.Errorf("deriving a pair key: %q and %q are not two clusters", clusterA, clusterB)
	case purpose == "":
		return nil, errors.New("deriving a pair key: no purpose")
	case remote == private.Public():
		return nil, fmt.Errorf("deriving the key of clusters %s and %s: both have the same public key", clusterA, clusterB)
	}
	public, err := ecdh.X25519().NewPublicKey(remote.key[:])
	if err != nil {
		return nil, fmt.Errorf("deriving the key of clusters %s and %s: public key %s is invalid", clusterA, clusterB, remote)
	}
	secret, err := private.key.ECDH(public)
	if err != nil {
		return nil, fmt.Errorf("deriving the key of clusters %s and %s: public key %s is of low order", clusterA, clusterB, remote)
	}
	own := private.Public()
	low, high := sorted([]byte(clusterA), []byte(clusterB))
	lowKey, highKey := sorted(own.key[:], remote.key[:])
	return hkdf.Key(sha256.New, secret, psk, info(purpose, low, high, lowKey, highKey), Size)
}

// info is the label of the scheme, then every part behind its length.
func info(purpose string, parts ...[]byte) string {
	b := []byte("submariner.io/pair-key/v1")
	for _, p := range append([][]byte{[]byte(purpose)}, parts...) {
		b = binary.BigEndian.AppendUint16(b, uint16(len(p)))
		b = append(b, p...)
	}
	return string(b)
}

func sorted(a, b []byte) (low, high []byte) {
	if bytes.Compare(a, b) > 0 {
		return b, a
	}
	return a, b
}
