package broker

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"subctl/api/submariner/v1alpha1"
	"subctl/broker/trust"
)

// wireTrust is the part of a join file about signatures, which upstream's files lack.
type wireTrust struct {
	SigningKey    []byte `json:"signingKey"` // see trust.Key.Seed
	Administrator string `json:"administrator"`
	Invitation    string `json:"invitation,omitempty"`
}

func (f *JoinFile) encodeTrust() *wireTrust {
	if f.SigningKey.IsZero() {
		return nil
	}
	return &wireTrust{
		SigningKey:    f.SigningKey.Seed(),
		Administrator: f.Administrator.String(),
		Invitation:    f.Invitation,
	}
}

// decodeTrust sets the part of the file about signatures, and verifies that it fits together.
func (f *JoinFile) decodeTrust(w *wireTrust) error {
	if w == nil {
		return nil
	}
	var err error
	if f.SigningKey, err = trust.ParseKey(w.SigningKey); err != nil {
		return errTruncated
	}
	if f.Administrator, err = trust.ParsePublic(w.Administrator); err != nil {
		return errTruncated
	}
	f.Invitation = w.Invitation
	if f.Invitation == "" && f.SigningKey.Public() != f.Administrator {
		return errTruncated
	}
	_, err = f.Invited()
	return err
}

// AdministratorKey returns the administrator's key; the zero Key if the file does not contain
// it, as the file for one cluster or a file of upstream's subctl.
func (f *JoinFile) AdministratorKey() trust.Key {
	if f == nil || f.Invitation != "" {
		return trust.Key{}
	}
	return f.SigningKey
}

// Invited returns the invitation of the file for one cluster; nil if the file is a general one.
func (f *JoinFile) Invited() (*trust.Invitation, error) {
	if f.Invitation == "" {
		return nil, nil
	}
	i, err := f.Administrator.Invitation(f.Invitation)
	if err == nil && i.Key != f.SigningKey.Public() {
		err = errors.New("its key is not the key of its invitation")
	}
	if err != nil {
		return nil, fmt.Errorf("contains an invalid invitation: %w: ask for a new file, which subctl invite writes",
			err)
	}
	return &i, nil
}

// CheckBroker returns an error if the keys in the file are not the keys of a broker.
func (f *JoinFile) CheckBroker(b *v1alpha1.Broker) error {
	admin := b.Annotations[AdministratorAnnotation]
	if !MayHavePSK(b, f.PSK) || admin != "" && admin != f.Administrator.String() {
		return fmt.Errorf(
			"is of another broker than %s, or was written before the broker got new keys: specify the file that subctl deploy-broker wrote for it",
			b.Namespace)
	}
	return nil
}

// SignGrant signs a grant with the key of the file.
func (f *JoinFile) SignGrant(g trust.Grant) (string, error) {
	if f.Invitation != "" {
		return f.SigningKey.SignInvitedGrant(g, f.Invitation)
	}
	return f.SigningKey.SignGrant(g)
}

// checkTrust returns an error if the file cannot sign grants.
func (f *JoinFile) checkTrust() error {
	if f.SigningKey.IsZero() {
		return errors.New("has no signing key, without which no cluster trusts another: " +
			"make a new one with subctl deploy-broker; only its pre-shared key can be used, with --ipsec-psk-from")
	}
	return nil
}

// Expires returns the time at which the file expires: its token or, in the file for one
// cluster, its invitation, whichever is first. It returns false if it never expires or its
// expiry is unknown.
func (f *JoinFile) Expires() (time.Time, bool) {
	at, ok := f.tokenExpires()
	if i, err := f.Invited(); err == nil && i != nil {
		if until := time.UnixMilli(i.Expires).UTC(); !ok || until.Before(at) {
			return until, true
		}
	}
	return at, ok
}

// tokenExpires returns the time at which the token expires.
func (f *JoinFile) tokenExpires() (time.Time, bool) {
	parts := strings.Split(string(f.Token), ".")
	if len(parts) != 3 {
		return time.Time{}, false
	}
	b, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return time.Time{}, false
	}
	var claims struct {
		Exp int64 `json:"exp"`
	}
	if json.Unmarshal(b, &claims) != nil || claims.Exp == 0 {
		return time.Time{}, false
	}
	return time.Unix(claims.Exp, 0).UTC(), true
}

// Expired returns an error if the file has expired at now.
func (f *JoinFile) Expired(now time.Time) error {
	at, ok := f.Expires()
	if !ok || now.Before(at) {
		return nil
	}
	if f.Invitation != "" {
		return fmt.Errorf(
			"expired at %s: ask the administrator of the broker for a new one, which subctl invite writes",
			at.Format(time.RFC3339))
	}
	return fmt.Errorf("expired at %s: run subctl deploy-broker again where it was made, "+
		"or subctl recover-broker-info", at.Format(time.RFC3339))
}
