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

// Purposes of pair keys. Keys of different purposes are independent.
const (
	WireGuardPSK = "wireguard-psk"
	IPsecPSK     = "ipsec-psk"
)

// minPSK is the minimum size of the pre-shared key in bytes, to refuse keys that a person typed.
// deploy-broker generates 48 random bytes.
const minPSK = 16

// PairKey returns the key of Size bytes that two clusters share for a purpose, the same at
// both ends. It is derived with HKDF-SHA256 (RFC 5869): the key is the X25519 secret of
// the pair, the salt is the pre-shared key of the join file, and info contains the
// purpose, the clusters and the public keys, sorted in byte order and each preceded by its
// length, so that the encoding is unambiguous.
//
// PairKey returns an error for a public key of low order, which would make the secret
// public, and for our own public key, which an attacker could have reflected.
func PairKey(private PrivateKey, remote PublicKey, psk []byte, clusterA, clusterB, purpose string) ([]byte, error) {
	switch {
	case private.key == nil:
		return nil, errors.New("deriving a pair key: this cluster has no key")
	case len(psk) < minPSK:
		return nil, fmt.Errorf("deriving a pair key: the pre-shared key has %d bytes, fewer than %d", len(psk), minPSK)
	case clusterA == "" || clusterB == "" || clusterA == clusterB:
		return nil, fmt.Errorf("deriving a pair key: %q and %q are not two different clusters", clusterA, clusterB)
	case purpose == "":
		return nil, errors.New("deriving a pair key: no purpose")
	case remote == private.Public():
		return nil, fmt.Errorf("deriving the key of clusters %s and %s: both have the same public key", clusterA,
			clusterB)
	}
	public, err := ecdh.X25519().NewPublicKey(remote.key[:])
	if err != nil {
		return nil, fmt.Errorf("deriving the key of clusters %s and %s: public key %s is invalid", clusterA, clusterB,
			remote)
	}
	secret, err := private.key.ECDH(public)
	if err != nil {
		return nil, fmt.Errorf("deriving the key of clusters %s and %s: public key %s is of low order", clusterA,
			clusterB, remote)
	}
	own := private.Public()
	low, high := sorted([]byte(clusterA), []byte(clusterB))
	lowKey, highKey := sorted(own.key[:], remote.key[:])
	return hkdf.Key(sha256.New, secret, psk, info(purpose, low, high, lowKey, highKey), Size)
}

// info returns the label of the scheme, followed by the parts, each preceded by its length.
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
