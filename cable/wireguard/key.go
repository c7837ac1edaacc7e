package wireguard

import (
	"crypto/ecdh"
	"encoding/base64"
	"errors"
	"fmt"

	"subctl/cable"
	"subctl/dataplane"
)

// privateKey returns this gateway's private key; the zero Secret if the plan is only shown.
func privateKey(l cable.Local) (dataplane.Secret, error) {
	k, err := l.Keys.WireGuard(l.Name)
	if err != nil || k == (dataplane.Secret{}) {
		return k, err
	}
	return k.Clamp(), nil
}

// ownKey returns the public key of privateKey; the zero key if there is none.
func ownKey(l cable.Local) (dataplane.PublicKey, error) {
	k, err := privateKey(l)
	if err != nil || k == (dataplane.Secret{}) {
		return dataplane.PublicKey{}, err
	}
	private, err := ecdh.X25519().NewPrivateKey(k[:])
	if err != nil {
		return dataplane.PublicKey{}, errors.New("this gateway's WireGuard key is not an X25519 key")
	}
	return dataplane.PublicKey(private.PublicKey().Bytes()), nil
}

// peerKey returns the public key that a gateway announces.
func peerKey(g cable.Gateway) (dataplane.PublicKey, error) {
	text, ok := g.Config[publicKeyKey]
	if !ok {
		return dataplane.PublicKey{}, fmt.Errorf("cluster %s announces no WireGuard key (%s)", g.Cluster, publicKeyKey)
	}
	b, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || len(b) != len(dataplane.PublicKey{}) || dataplane.PublicKey(b) == (dataplane.PublicKey{}) {
		return dataplane.PublicKey{}, fmt.Errorf(
			"cluster %s announces %.64q as its WireGuard key (%s), which is not the base64 of 32 bytes", g.Cluster,
			text, publicKeyKey)
	}
	return dataplane.PublicKey(b), nil
}
