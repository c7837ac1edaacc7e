// Package pki makes the keys, certificates and kubeconfigs of one cluster, in its directory. They
// are for a laboratory: ten years, one CA for everything, and no rotation. Keys never leave the
// directory but inside kubeconfigs (0600).
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Set is a CA, and the directory whose pki/ it signs into.
type Set struct {
	Pool  *x509.CertPool
	Admin tls.Certificate

	dir   string
	caPEM []byte
	ca    *x509.Certificate
	caKey *ecdsa.PrivateKey
}

// Config holds the properties of a cluster that its certificates contain.
type Config struct {
	Name    string   // of the cluster
	Dir     string   // pki/ and *.kubeconfig are written here
	Server  string   // URL of the API server, for everybody outside its process
	Local   string   // URL of the API server for the controller-manager and the scheduler beside it
	SANs    []string // names and addresses of the API server
	Service net.IP   // first address of the service CIDR: the API server as pods see it
	Domain  string   // cluster DNS domain
}

// Ensure loads the keys in c.Dir, or makes them.
func Ensure(c Config) (*Set, error) {
	if _, err := os.Stat(filepath.Join(c.Dir, "pki", "complete")); err == nil {
		return Load(c.Dir)
	}
	if err := os.MkdirAll(filepath.Join(c.Dir, "pki"), 0o700); err != nil {
		return nil, err
	}
	s := &Set{dir: c.Dir, Pool: x509.NewCertPool()}
	if err := s.makeCA(c.Name); err != nil {
		return nil, fmt.Errorf("making the CA of %s: %w", c.Name, err)
	}
	if err := s.makeServiceAccountKey(); err != nil {
		return nil, fmt.Errorf("making the service account key of %s: %w", c.Name, err)
	}
	kubernetes := []string{
		"kubernetes",
		"kubernetes.default",
		"kubernetes.default.svc",
		"kubernetes.default.svc." + c.Domain,
		c.Service.String(),
	}
	for _, cert := range []struct {
		file, name, group string
		sans              []string
	}{
		{"apiserver", "kube-apiserver", "", append(kubernetes, c.SANs...)},
		{"kubelet-client", "kube-apiserver-kubelet-client", "system:masters", nil},
		{"front-proxy", "front-proxy", "", nil},
	} {
		if _, _, err := s.sign(cert.file, cert.name, cert.group, cert.sans...); err != nil {
			return nil, err
		}
	}
	for _, user := range []struct{ file, name, group, server string }{
		{"admin", "admin", "system:masters", c.Server},
		{"kube-proxy", "system:kube-proxy", "", c.Server},
		{"controller-manager", "system:kube-controller-manager", "", c.Local},
		{"scheduler", "system:kube-scheduler", "", c.Local},
	} {
		if err := s.User(user.file, user.name, user.group, c.Name, user.server); err != nil {
			return nil, err
		}
	}
	// Written last: a lab that was killed half-way must not be taken for a whole one.
	if err := os.WriteFile(filepath.Join(c.Dir, "pki", "complete"), nil, 0o600); err != nil {
		return nil, err
	}
	return Load(c.Dir)
}

// Load reads the keys of a cluster that has them.
func Load(dir string) (*Set, error) {
	s := &Set{dir: dir, Pool: x509.NewCertPool()}
	var err error
	if s.caPEM, err = os.ReadFile(s.path("ca.crt")); err != nil {
		return nil, fmt.Errorf("reading the CA of a cluster: %w", err)
	}
	s.Pool.AppendCertsFromPEM(s.caPEM)
	pair, err := tls.LoadX509KeyPair(s.path("ca.crt"), s.path("ca.key"))
	if err != nil {
		return nil, fmt.Errorf("reading the CA in %s: %w", dir, err)
	}
	s.ca = pair.Leaf
	s.caKey = pair.PrivateKey.(*ecdsa.PrivateKey)
	if s.Admin, err = tls.LoadX509KeyPair(s.path("admin.crt"), s.path("admin.key")); err != nil {
		return nil, fmt.Errorf("reading the admin's key in %s: %w", dir, err)
	}
	return s, nil
}

// User signs a client certificate and writes FILE.kubeconfig with it. sans make it a server
// certificate too (kubelets).
func (s *Set) User(file, name, group, cluster, server string, sans ...string) error {
	cert, key, err := s.sign(file, name, group, sans...)
	if err != nil {
		return err
	}
	return s.kubeconfig(filepath.Join(s.dir, file+".kubeconfig"), cluster, server, cert, key)
}

func (s *Set) path(file string) string { return filepath.Join(s.dir, "pki", file) }

func (s *Set) makeCA(cluster string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: cluster + "-ca"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(10, 0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return err
	}
	if s.ca, err = x509.ParseCertificate(der); err != nil {
		return err
	}
	s.caKey = key
	if s.caPEM, err = s.write("ca.crt", "CERTIFICATE", der); err != nil {
		return err
	}
	_, err = s.writeKey("ca.key", key)
	return err
}

func (s *Set) makeServiceAccountKey() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	if _, err := s.writeKey("sa.key", key); err != nil {
		return err
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return err
	}
	_, err = s.write("sa.pub", "PUBLIC KEY", der)
	return err
}

// sign makes FILE.crt and FILE.key, good for client and server use.
func (s *Set) sign(file, name, group string, sans ...string) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(10, 0, 0),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	if group != "" {
		template.Subject.Organization = []string{group}
	}
	for _, san := range sans {
		if ip := net.ParseIP(san); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, san)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, s.ca, &key.PublicKey, s.caKey)
	if err != nil {
		return nil, nil, fmt.Errorf("signing the certificate of %s: %w", name, err)
	}
	if certPEM, err = s.write(file+".crt", "CERTIFICATE", der); err != nil {
		return nil, nil, err
	}
	keyPEM, err = s.writeKey(file+".key", key)
	return certPEM, keyPEM, err
}

func (s *Set) writeKey(file string, key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return s.write(file, "EC PRIVATE KEY", der)
}

func (s *Set) write(file, kind string, der []byte) ([]byte, error) {
	b := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	return b, os.WriteFile(s.path(file), b, 0o600)
}
