package webhook

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Keys of the Secret. The webhooks serve tls.crt. next.crt replaces it once the API server trusts
// both; old.crt is trusted until it expires, as a replica may still serve it. Each certificate is
// signed by its own key, and trusted by itself: there is no authority whose key could be stolen.
const (
	oldCert             = "old.crt"
	nextCert, nextKey   = "next.crt", "next.key"
	certificateLifetime = 90 * 24 * time.Hour
)

// skew is the time before now from which on certificates are valid, as a divisor of their lifetime:
// clocks differ.
const skew = 24

// newPair returns a certificate for DNS names and IP addresses, and its key, as PEM.
func newPair(names []string, now time.Time, lifetime time.Duration) (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: "SD-EWAN webhooks"},
		NotBefore:             now.Add(-lifetime / skew),
		NotAfter:              now.Add(lifetime),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, n)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return nil, nil, err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{
		Type:  "CERTIFICATE",
		Bytes: der,
	}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), nil
}

// usable returns a certificate with its key if it is valid now and for all names.
func usable(cert, key []byte, names []string, now time.Time) (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	switch leaf := pair.Leaf; {
	case leaf == nil:
		return nil, errors.New("no certificate")
	case now.Before(leaf.NotBefore) || now.After(leaf.NotAfter):
		return nil, fmt.Errorf("valid from %s to %s", leaf.NotBefore, leaf.NotAfter)
	default:
		for _, n := range names {
			if err := leaf.VerifyHostname(n); err != nil {
				return nil, err
			}
		}
	}
	return &pair, nil
}

// turn changes the data of the Secret as far as it is time to: it creates what is missing or
// unusable, prepares the next certificate after two thirds of the lifetime, and lets it replace the
// current one once it is trusted, which is when the API server has had its certificate for a while.
// It reports whether data has changed.
func turn(
	data map[string][]byte,
	names []string,
	now time.Time,
	lifetime time.Duration,
	trusted bool,
) (changed bool, err error) {
	current, currentErr := usable(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey], names, now)
	_, nextErr := usable(data[nextCert], data[nextKey], names, now)
	switch {
	case currentErr != nil && nextErr != nil:
		cert, key, err := newPair(names, now, lifetime)
		if err != nil {
			return false, err
		}
		clear(data)
		data[corev1.TLSCertKey] = cert
		data[corev1.TLSPrivateKeyKey] = key
	case currentErr != nil, nextErr == nil && trusted && !now.Before(renewal(current.Leaf)):
		data[oldCert] = data[corev1.TLSCertKey]
		data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey] = data[nextCert], data[nextKey]
		delete(data, nextCert)
		delete(data, nextKey)
	case nextErr != nil && !now.Before(renewal(current.Leaf)):
		cert, key, err := newPair(names, now, lifetime)
		if err != nil {
			return false, err
		}
		data[nextCert] = cert
		data[nextKey] = key
	default:
		return false, nil
	}
	return true, nil
}

// renewal returns the time when a certificate is two thirds through its lifetime.
func renewal(leaf *x509.Certificate) time.Time {
	return leaf.NotAfter.Add(-leaf.NotAfter.Sub(leaf.NotBefore) / 3)
}

// bundle returns the certificates that the API server should trust.
func bundle(data map[string][]byte, now time.Time) []byte {
	var out [][]byte
	for _, key := range []string{corev1.TLSCertKey, nextCert, oldCert} {
		block, _ := pem.Decode(data[key])
		if block == nil {
			continue
		}
		leaf, err := x509.ParseCertificate(block.Bytes)
		if err != nil || now.After(leaf.NotAfter) ||
			slices.ContainsFunc(out, func(o []byte) bool { return bytes.Equal(o, data[key]) }) {
			continue
		}
		out = append(out, data[key])
	}
	return bytes.Join(out, nil)
}
