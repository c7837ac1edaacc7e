package broker

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"subctl/broker/trust"
	"subctl/internal/secret"
)

// This file chooses the keys that join files contain and the broker does not. The broker has
// a fingerprint of each, by which they are recognized.

// Origins of keys.
const (
	NewKey  = "new"
	keptKey = "kept from the existing join file"
)

// KeySources are the files from which the keys of a broker can be taken.
type KeySources struct {
	// PSKFrom and SigningKeyFrom are the files that the user specified, or nil. The file with
	// the pre-shared key is used for the signing key, too, if it has one and no other file is
	// specified.
	PSKFrom, SigningKeyFrom *JoinFile
	// Existing is the file that will be replaced. It is nil if there is none, or if it
	// cannot be read; Reason is then the error.
	Existing *JoinFile
	Reason   error
	// URL and Namespace are the address and base namespace of the broker.
	URL, Namespace string
}

// Keys are the keys of a broker, and their origins as text.
type Keys struct {
	PSK       Secret
	PSKOrigin string
	// Administrator signs the grants of members, and what is made on the broker.
	Administrator       trust.Key
	AdministratorOrigin string
}

// joinKey is a key in join files.
type joinKey struct {
	noun       string
	flag       string // that names a file with it
	annotation string // of the Broker: its fingerprint
	remedy     string // if it is lost
	// of returns the fingerprint of the key in a file; "" if the file has none.
	of func(*JoinFile) string
}

var (
	preShared = joinKey{
		"pre-shared key", "--ipsec-psk-from", PSKFingerprintAnnotation,
		"or get the key back from a joined cluster with subctl recover-broker-info",
		func(f *JoinFile) string { return Fingerprint(f.PSK) },
	}
	administrators = joinKey{
		"administrator's key", "--signing-key-from", AdministratorAnnotation,
		"even one that has expired; no cluster has this key: if all files are lost, uninstall these clusters, deploy the broker again, and join them",
		func(f *JoinFile) string { return f.AdministratorKey().Public().String() },
	}
)

// ChooseKeys returns the keys for a broker in state s. The keys of a broker with members cannot
// change: no cable would come up between these members and new ones, and neither would accept
// what the others publish.
func (s State) ChooseKeys(from KeySources) (Keys, error) {
	var k Keys
	psk, origin, err := s.choose(preShared, from.PSKFrom, from)
	if k.PSKOrigin = origin; psk != nil {
		k.PSK = psk.PSK
	}
	admin, origin, err2 := s.ChooseAdministrator(from)
	k.Administrator = admin
	k.AdministratorOrigin = origin
	if err := errors.Join(err, err2); err != nil {
		return Keys{}, err
	}
	if psk == nil {
		k.PSK = make(Secret, pskSize)
		if _, err := rand.Read(k.PSK); err != nil {
			return Keys{}, fmt.Errorf("generating a pre-shared key: %w", err)
		}
	}
	if admin.IsZero() {
		k.Administrator, err = trust.NewKey()
	}
	return k, err
}

// ChooseAdministrator returns the administrator's key for a broker in state s, and its origin. The
// key is zero if a new one is to be made.
func (s State) ChooseAdministrator(from KeySources) (trust.Key, string, error) {
	named := from.SigningKeyFrom
	kind := administrators
	if named == nil && from.PSKFrom != nil && !from.PSKFrom.AdministratorKey().IsZero() {
		named = from.PSKFrom
		kind.flag = preShared.flag
	}
	file, origin, err := s.choose(kind, named, from)
	return file.AdministratorKey(), origin, err
}

// choose returns the file whose key is the broker's, and a description of its origin; nil if a
// new key is to be made.
func (s State) choose(k joinKey, named *JoinFile, from KeySources) (*JoinFile, string, error) {
	fingerprint := s.annotation(k.annotation)
	switch {
	case named != nil && k.of(named) == "":
		return nil, "", fmt.Errorf(
			"the file given with %s has no %s: specify the general join file, which subctl deploy-broker wrote", k.flag,
			k.noun)
	case named != nil:
		if fingerprint != "" && len(s.Members) > 0 && k.of(named) != fingerprint {
			return nil, "", fmt.Errorf(
				"the %s of the file given with %s is not the one that the "+
					"joined clusters use (%s): leave the flag out, or uninstall them first",
				k.noun,
				k.flag,
				strings.Join(s.Members, ", "),
			)
		}
		return named, "from the file given with " + k.flag, nil
	case from.belongs(k, fingerprint):
		return from.Existing, keptKey, nil
	case len(s.Members) > 0:
		return nil, "", from.lost(k, s.Members)
	}
	return nil, NewKey, nil
}

// belongs reports whether the existing file has the key of this broker. A broker without a
// fingerprint is identified by its address.
func (f KeySources) belongs(k joinKey, fingerprint string) bool {
	if f.Existing == nil || k.of(f.Existing) == "" {
		return false
	}
	if fingerprint != "" {
		return k.of(f.Existing) == fingerprint
	}
	return f.Existing.BrokerURL == f.URL && f.Existing.Namespace == f.Namespace
}

func (f KeySources) lost(k joinKey, members []string) error {
	why := errors.New("there is no join file of this broker here")
	switch {
	case f.Existing != nil && k.of(f.Existing) == "":
		why = errors.New("the join file here does not contain it")
	case f.Existing != nil:
		why = errors.New("the join file here is of another broker")
	case f.Reason != nil:
		why = f.Reason
	}
	return fmt.Errorf("clusters are joined (%s), and their %s is needed, but %w: specify a file with %s, %s",
		strings.Join(members, ", "), k.noun, why, k.flag, k.remedy)
}

// Secret is a token or a pre-shared key. It is never printed.
type Secret = secret.Bytes

// Fingerprint returns 32 hexadecimal digits that distinguish pre-shared keys and reveal
// nothing about a random key. A key that can be guessed can be found from its fingerprint.
func Fingerprint(psk Secret) string {
	mac := hmac.New(sha256.New, psk)
	mac.Write([]byte("submariner.io/psk-fingerprint"))
	return hex.EncodeToString(mac.Sum(nil)[:16])
}
