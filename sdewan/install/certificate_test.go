package install

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/sdewan/rest/client"
)

// The controller accepts the certificate for each pod of the namespace, and of no other one: the CA
// may sign for nothing else.
func TestCertificateIsForOneNamespace(t *testing.T) {
	now := time.Now()
	ca, cert, key, err := NewCertificate("branch", now)
	require.NoError(t, err)
	pair, err := tls.X509KeyPair(cert, key)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(ca))
	verify := func(name string, at time.Time) error {
		_, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name, CurrentTime: at})
		return err
	}
	pod := netip.MustParseAddr("10.244.3.17")
	require.NoError(t, verify(client.PodName(pod, "branch", "cluster.local"), now))
	require.NoError(t, verify(client.PodName(pod, "branch", "cluster.local"), now.Add(-time.Minute)), "clocks differ")
	require.NoError(t, verify(client.PodName(pod, "branch", "cluster.local"), now.AddDate(9, 0, 0)))
	require.Error(t, verify(client.PodName(pod, "other", "cluster.local"), now))
	require.Error(t, verify("kubernetes.default.svc", now))

	block, _ := pem.Decode(ca)
	root, err := x509.ParseCertificate(block.Bytes)
	require.NoError(t, err)
	require.True(t, root.PermittedDNSDomainsCritical)
	require.Equal(t, []string{"branch.pod.cluster.local"}, root.PermittedDNSDomains)
	require.True(t, root.MaxPathLenZero, "it signs no other CA")
}

// Passwords differ, and are long enough that nobody guesses them.
func TestPasswords(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		p := NewPassword()
		require.Regexp(t, `^[A-Za-z0-9_-]{24}$`, p)
		require.False(t, seen[p])
		seen[p] = true
	}
}
