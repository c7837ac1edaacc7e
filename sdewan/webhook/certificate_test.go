package webhook

import (
	"crypto/x509"
	"encoding/pem"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

var hosts = []string{"sdewan-webhook.system.svc", "127.0.0.1"}

// A year of a certificate that lives for 90 days: at any time, what is served is trusted, and it is
// trusted before it is served.
func TestTurn(t *testing.T) {
	const lifetime = 90 * 24 * time.Hour
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	data := map[string][]byte{}
	var trusted []byte
	served := map[string]bool{}
	for day := range 365 {
		published := len(data[nextCert]) > 0 && contains(t, trusted, data[nextCert])
		_, err := turn(data, hosts, now, lifetime, published)
		require.NoError(t, err)
		if len(trusted) > 0 {
			require.True(t, contains(t, trusted, data[corev1.TLSCertKey]),
				"%s: an API server with an older configuration does not trust the certificate", now)
		}
		if day%3 == 0 { // otherwise the API server does not accept the configuration
			trusted = bundle(data, now)
		}
		pair, err := usable(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey], hosts, now)
		require.NoError(t, err, now)
		require.Greater(t, pair.Leaf.NotAfter.Sub(now), lifetime/5)
		pool := x509.NewCertPool()
		require.True(t, pool.AppendCertsFromPEM(trusted))
		for _, host := range hosts {
			_, err = pair.Leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: pool, CurrentTime: now})
			require.NoError(t, err)
		}
		served[string(data[corev1.TLSCertKey])] = true
		now = now.Add(24 * time.Hour)
	}
	require.InDelta(t, 6, len(served), 1, "a new one every 60 days")
}

func contains(t testing.TB, pems, one []byte) bool {
	t.Helper()
	want, _ := pem.Decode(one)
	require.NotNil(t, want)
	for rest := pems; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return false
		} else if string(block.Bytes) == string(want.Bytes) {
			return true
		}
	}
}

// A Secret that is broken, foreign, expired or for another name is replaced.
func TestHostileSecret(t *testing.T) {
	now := time.Now()
	good := map[string][]byte{}
	_, err := turn(good, hosts, now, time.Hour, false)
	require.NoError(t, err)
	foreign := map[string][]byte{}
	_, err = turn(foreign, []string{"example.com"}, now, time.Hour, false)
	require.NoError(t, err)
	for name, data := range map[string]map[string][]byte{
		"empty":  {},
		"no PEM": {corev1.TLSCertKey: []byte("x"), corev1.TLSPrivateKeyKey: []byte("y")},
		"another key": {
			corev1.TLSCertKey:       good[corev1.TLSCertKey],
			corev1.TLSPrivateKeyKey: foreign[corev1.TLSPrivateKeyKey],
		},
		"no key":       {corev1.TLSCertKey: good[corev1.TLSCertKey]},
		"another name": foreign,
		"foreign next": {nextCert: foreign[corev1.TLSCertKey], nextKey: foreign[corev1.TLSPrivateKeyKey]},
		"rubbish beside": {
			corev1.TLSCertKey: []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
			oldCert:           []byte("x"),
			nextCert:          []byte("y"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			changed, err := turn(data, hosts, now, time.Hour, false)
			require.NoError(t, err)
			require.True(t, changed)
			_, err = usable(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey], hosts, now)
			require.NoError(t, err)
			require.Contains(t, string(bundle(data, now)), string(data[corev1.TLSCertKey]))
			require.NotContains(t, string(bundle(data, now))+"\n", "\nx\n", "rubbish")
		})
	}
	changed, err := turn(good, hosts, now.Add(2*time.Hour), time.Hour, false)
	require.NoError(t, err)
	require.True(t, changed, "expired")
	changed, err = turn(good, hosts, now.Add(2*time.Hour), time.Hour, false)
	require.NoError(t, err)
	require.False(t, changed)
}
