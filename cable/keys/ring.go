package keys

import (
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"

	"subctl/dataplane"
)

// Ring is what a gateway derives the keys of its cables from. A nil Ring yields
// zero Secrets: enough to show a plan, and refused by every kernel.
type Ring struct {
	Cluster string
	Private PrivateKey
	Seed    []byte // of the gateways' WireGuard keys; Size bytes
	PSK     []byte // of the join file
}

// Pair returns the key that this cluster shares with another for a purpose: see
// PairKey.
func (r *Ring) Pair(cluster string, remote PublicKey, purpose string) (dataplane.Secret, error) {
	if r == nil {
		return dataplane.Secret{}, nil
	}
	b, err := PairKey(r.Private, remote, r.PSK, r.Cluster, cluster, purpose)
	if err != nil {
		return dataplane.Secret{}, err
	}
	return dataplane.Secret(b), nil
}

// WireGuard returns the private WireGuard key of a gateway: the same after every
// restart, another on every gateway. It does not follow the cluster key, so that
// rotating that (and with it every pair key, without which there is no handshake)
// interrupts no session.
func (r *Ring) WireGuard(gateway string) (dataplane.Secret, error) {
	if r == nil {
		return dataplane.Secret{}, nil
	}
	if len(r.Seed) != Size {
		return dataplane.Secret{}, errors.New("deriving a WireGuard key: this cluster's key Secret has no seed: run subctl join again")
	}
	b, err := hkdf.Key(sha256.New, r.Seed, nil, info("wireguard-private", []byte(r.Cluster), []byte(gateway)), Size)
	if err != nil {
		return dataplane.Secret{}, err
	}
	return dataplane.Secret(b), nil
}

// Format keeps every verb from printing a key.
func (r Ring) Format(f fmt.State, _ rune) { _, _ = fmt.Fprintf(f, "keys of cluster %s", r.Cluster) }

// MarshalText keeps encoders and log handlers from seeing the keys.
func (r Ring) MarshalText() ([]byte, error) { return fmt.Append(nil, r), nil }
