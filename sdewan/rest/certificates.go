package rest

import (
	"crypto"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
)

// certificates are the fields of a Remote with certificates and keys, which have several lines.
var certificates = []string{"local_public_cert", "local_private_cert", "shared_ca"}

// separator is between the certificates or keys of a field.
const separator = "___"

// Most certificates or keys of a field, and bytes of one of them: a certificate of RSA with 16,384
// bits has 6 KiB.
const (
	maxCertificates = 16
	maxCertificate  = 32 << 10
)

// Identity holds the certificates and keys of a Remote with the authentication method pubkey, and
// the authorities that it trusts.
type Identity struct {
	Certificates [][]byte // DER; the first is that of the first key
	Keys         [][]byte // DER of PKCS #8: secret
	Authorities  [][]byte // DER
}

// Identity parses the certificates and keys: base64 of PEM, several joined by "___". PEM itself is
// accepted, too. Each key must belong to one of the certificates, and each certificate to one of
// the keys unless it is that of a certificate authority. Errors contain nothing of the keys.
func (o *Remote) Identity() (Identity, error) {
	var id Identity
	var problems []error
	problem := func(field, format string, args ...any) {
		problems = append(problems, fmt.Errorf(field+": "+format, args...))
	}
	mine, err := parseAll(o.LocalCert, parseCertificate)
	if err != nil {
		problem("local_public_cert", "%w", err)
	}
	keys, err := parseAll(o.LocalKey, parseKey)
	if err != nil {
		problem("local_private_cert", "%w", err)
	}
	authorities, err := parseAll(o.CA, parseCertificate)
	if err != nil {
		problem("shared_ca", "%w", err)
	}
	if problems != nil {
		return Identity{}, errors.Join(problems...)
	}
	hasKey := make([]bool, len(mine))
	for i, k := range keys {
		found := false
		for j, c := range mine {
			if public, ok := c.PublicKey.(interface{ Equal(crypto.PublicKey) bool }); ok && public.Equal(k.Public()) {
				if !found && !hasKey[j] && len(id.Certificates) == i {
					id.Certificates = append(id.Certificates, c.Raw)
				}
				found = true
				hasKey[j] = true
			}
		}
		if !found {
			problem("local_private_cert",
				"key %d belongs to none of the certificates in local_public_cert: provide the certificate of this key",
				i+1)
		}
		der, err := x509.MarshalPKCS8PrivateKey(k)
		if err != nil {
			problem("local_private_cert", "key %d cannot be encoded", i+1)
		}
		id.Keys = append(id.Keys, der)
	}
	for j, c := range mine {
		if !hasKey[j] && !c.IsCA {
			problem("local_public_cert",
				"certificate %d (%.60q) belongs to none of the keys in local_private_cert: provide its key", j+1,
				c.Subject.String())
		}
		if !hasKey[j] {
			id.Certificates = append(id.Certificates, c.Raw)
		}
	}
	for _, c := range authorities {
		id.Authorities = append(id.Authorities, c.Raw)
	}
	return id, errors.Join(problems...)
}

func (c *checker) certificates(o *Remote) {
	_, err := o.Identity()
	var all interface{ Unwrap() []error }
	if errors.As(err, &all) {
		for _, err := range all.Unwrap() {
			c.problems = append(c.problems, err.Error())
		}
	}
}

// parseAll parses the PEM blocks of a field.
func parseAll[T any](value string, parse func(*pem.Block) (T, error)) ([]T, error) {
	if strings.TrimSpace(value) == "" {
		return nil, errors.New("required for the authentication method pubkey")
	}
	var all []T
	for i, part := range strings.Split(value, separator) {
		text := []byte(part)
		if !strings.Contains(part, "-----BEGIN") {
			var err error
			if text, err = base64.StdEncoding.DecodeString(strings.Join(strings.Fields(part), "")); err != nil {
				return nil, fmt.Errorf("part %d is not base64 of PEM", i+1)
			}
		}
		before := len(all)
		for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
			if block.Type == "EC PARAMETERS" {
				continue // openssl writes them before a key
			}
			if len(block.Bytes) > maxCertificate || len(all) == maxCertificates {
				return nil, fmt.Errorf("part %d: at most %d certificates or keys of %d bytes are accepted", i+1,
					maxCertificates, maxCertificate)
			}
			one, err := parse(block)
			if err != nil {
				return nil, fmt.Errorf("part %d: %w", i+1, err)
			}
			all = append(all, one)
		}
		if len(all) == before {
			return nil, fmt.Errorf("part %d has no PEM: provide base64 of a file that begins with -----BEGIN", i+1)
		}
	}
	return all, nil
}

func parseCertificate(b *pem.Block) (*x509.Certificate, error) {
	if b.Type != "CERTIFICATE" {
		return nil, fmt.Errorf("it has a block of type %.40q instead of CERTIFICATE", b.Type)
	}
	c, err := x509.ParseCertificate(b.Bytes)
	if err != nil {
		return nil, errors.New("it is not a valid certificate")
	}
	return c, nil
}

func parseKey(b *pem.Block) (crypto.Signer, error) {
	var key any
	err := fmt.Errorf(
		"it has a block of type %.40q instead of an unencrypted PRIVATE KEY, RSA PRIVATE KEY or EC PRIVATE KEY", b.Type)
	switch {
	case b.Headers["DEK-Info"] != "" || b.Type == "ENCRYPTED PRIVATE KEY":
		return nil, errors.New("it is encrypted: provide it unencrypted")
	case b.Type == "PRIVATE KEY":
		key, err = x509.ParsePKCS8PrivateKey(b.Bytes)
	case b.Type == "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(b.Bytes)
	case b.Type == "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(b.Bytes)
	default:
		return nil, err
	}
	signer, ok := key.(crypto.Signer)
	if err != nil || !ok {
		return nil, errors.New("it is not a valid private key")
	}
	return signer, nil
}
