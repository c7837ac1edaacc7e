package install

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"time"
)

// lifetime is the validity period of the certificates that NewCertificate makes. The CNF is
// configured through them: should they expire, no rule could be changed, so it is longer than a CNF
// lives.
const lifetime = 10 * 365 * 24 * time.Hour

// skew is the time before now from which on certificates are valid: clocks differ.
const skew = time.Hour

// NewPassword returns a random password of 24 characters, of letters, digits, '-' and '_': clients
// send it without escaping.
func NewPassword() string {
	random := make([]byte, 18)
	_, _ = rand.Read(random) // never fails: see crypto/rand
	return base64.RawURLEncoding.EncodeToString(random)
}

// NewCertificate returns a certificate for all pods of CNFs in a namespace, its key, and the
// certificate of an authority that has signed nothing else, and whose key is forgotten.
func NewCertificate(namespace string, now time.Time) (ca, cert, key []byte, err error) {
	authority, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, nil, err
	}
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, nil, err
	}
	root := &x509.Certificate{
		SerialNumber:                big.NewInt(1),
		Subject:                     pkix.Name{CommonName: "CNFs of " + namespace},
		NotBefore:                   now.Add(-skew),
		NotAfter:                    now.Add(lifetime),
		IsCA:                        true,
		BasicConstraintsValid:       true,
		MaxPathLenZero:              true,
		KeyUsage:                    x509.KeyUsageCertSign,
		PermittedDNSDomainsCritical: true,
		PermittedDNSDomains:         []string{DNSName(namespace)[2:]},
	}
	rootDER, err := x509.CreateCertificate(rand.Reader, root, root, &authority.PublicKey, authority)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("creating a certificate: %w", err)
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(
			2),
		Subject:   pkix.Name{CommonName: "CNF"},
		NotBefore: root.NotBefore,
		NotAfter:  root.NotAfter,
		DNSNames: []string{
			DNSName(namespace),
		},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, root, &own.PublicKey, authority)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("creating a certificate: %w", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(own)
	if err != nil {
		return nil, nil, nil, err
	}
	text := func(kind string, der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}) }
	return text("CERTIFICATE", rootDER), text("CERTIFICATE", leafDER), text("PRIVATE KEY", keyDER), nil
}
