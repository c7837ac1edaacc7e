package keys

import (
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"

	"subctl/dataplane"
)

// A Ring holds the secrets from which a gateway derives the keys of its cables. A nil Ring
// returns zero Secrets: these suffice to show a plan, and every kernel rejects them.
type Ring struct {
	Cluster string
	Private PrivateKey
	Seed    []byte // seed of the gateways' WireGuard keys; Size bytes
	PSK     []byte // pre-shared key of the join file
}

// Pair returns the key that this cluster shares with another cluster for a purpose; see
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

// WireGuard returns the private WireGuard key of a gateway. It is the same after every
// restart, and different for every gateway. It does not depend on the cluster key, so that
// rotating the cluster key interrupts no session: rotation only changes the pair keys,
// which the next handshake uses.
func (r *Ring) WireGuard(gateway string) (dataplane.Secret, error) {
	if r == nil {
		return dataplane.Secret{}, nil
	}
	if len(r.Seed) != Size {
		return dataplane.Secret{}, errors.New(
			"deriving a WireGuard key: this cluster's key Secret has no seed: run subctl join again")
	}
	b, err := hkdf.Key(sha256.New, r.Seed, nil, info("wireguard-private", []byte(r.Cluster), []byte(gateway)), Size)
	if err != nil {
		return dataplane.Secret{}, err
	}
	return dataplane.Secret(b), nil
}

// Format implements fmt.Formatter, so that no verb prints a key.
func (r Ring) Format(f fmt.State, _ rune) { _, _ = fmt.Fprintf(f, "keys of cluster %s", r.Cluster) }

// MarshalText implements encoding.TextMarshaler, so that encoders and log handlers do not print
// the keys.
func (r Ring) MarshalText() ([]byte, error) { return fmt.Append(nil, r), nil }
