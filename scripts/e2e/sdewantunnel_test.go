//go:build e2e

package e2e

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
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// hubNetworks are the networks of the other site.
const hubNetworks = `
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: hublan}
spec:
  config: '{"cniVersion": "1.0.0", "type": "bridge", "bridge": "hublan", "capabilities": {"ips": true}, "ipam": {"type": "static"}}'
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: core}
spec:
  config: '{"cniVersion": "1.0.0", "type": "bridge", "bridge": "core", "capabilities": {"ips": true}, "ipam": {"type": "static"}}'
`

func sdewanTunnelPSK(t *testing.T) {
	kubectl(t, sdewanCluster, "create", "namespace", "hub")
	applyIn(t, "hub", hubNetworks)
	applyIn(
		t,
		"hub",
		rendered(t, "hub", "--purpose", "hub", "-n", "hub", "--networks", "hublan=10.30.0.254/24,core=192.0.2.10/24",
			"--uplinks", "core=192.0.2.1"),
	)
	kubectl(t, sdewanCluster, "-n", "hub", "rollout", "status", "deployment/hub", "--timeout=120s")
	applyIn(t, "hub", manifest(t, "hub.yaml"))
	applyIn(t, "default", manifest(t, "edge.yaml"))
	inSync(t, "hub")
	inSync(t, "default")
	throughTunnel(t)
}

// throughTunnel requires that a host of the site reaches a host of the hub through the tunnel, from
// the address of the pool, and that no packet of theirs passes outside of it.
func throughTunnel(t *testing.T) {
	t.Helper()
	wires := []*capture{startCaptureOn(t, "isp1", "core", "ip"), startCaptureOn(t, "isp2", "core", "ip")}
	took := eventually(t, 30*time.Second, func() error {
		out, err := onHost("client", "get", "http://10.30.0.1:8080/", "--timeout", "3s")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		if !strings.Contains(out, "from=172.12.0.30:") {
			return fmt.Errorf("not from the virtual address: %s", out)
		}
		return nil
	})
	t.Logf("through the tunnel after %v", took.Round(100*time.Millisecond))
	out, err := onHost("client", "get", "http://10.30.0.1:8080/", "-n", "20")
	require.NoError(t, err, out)
	encrypted := 0
	for _, w := range wires {
		w.stop(t)
		require.Empty(t, w.packets(t, "net 10.30.0.0/24 or net 172.12.0.0/24 or net 192.168.1.0/24"), "in the clear")
		encrypted += len(w.packets(t, carriers["ipsec"]))
	}
	require.Greater(t, encrypted, 100, "20 requests are more packets")
}

// sdewanTunnelCertificates replaces the key of both ends by certificates.
func sdewanTunnelCertificates(t *testing.T) {
	ca, sign := authority(t)
	for _, end := range []struct{ namespace, file, own, other string }{
		{"hub", "hub.yaml", "hub", "edge"},
		{"default", "edge.yaml", "edge", "hub"},
	} {
		cert, key := sign(end.own)
		text := manifest(t, end.file)
		text = strings.Replace(text, "authentication_method: psk\n", "authentication_method: pubkey\n", 1)
		text = strings.Replace(text, "  pre_shared_key: correct-horse-battery\n",
			fmt.Sprintf("  local_public_cert: %s\n  local_private_cert: %s\n  shared_ca: %s\n", cert, key, ca), 1)
		require.Contains(t, text, "pubkey")
		applyIn(t, end.namespace, text)
	}
	inSync(t, "hub")
	inSync(t, "default")
	throughTunnel(t)
}

// authority returns the certificate of a new authority, and a function that signs certificates for
// names, all as fields of IpsecSites have them.
func authority(t *testing.T) (ca string, sign func(name string) (cert, key string)) {
	t.Helper()
	field := func(kind string, der []byte) string {
		return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	rootKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	root := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "sites"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, root, root, &rootKey.PublicKey, rootKey)
	require.NoError(t, err)
	serial := int64(1)
	return field("CERTIFICATE", der), func(name string) (string, string) {
		serial++
		own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		require.NoError(t, err)
		leaf := &x509.Certificate{
			SerialNumber: big.NewInt(serial),
			Subject:      pkix.Name{CommonName: name},
			DNSNames:     []string{name},
			NotBefore:    root.NotBefore,
			NotAfter:     root.NotAfter,
			KeyUsage:     x509.KeyUsageDigitalSignature,
		}
		der, err := x509.CreateCertificate(rand.Reader, leaf, root, &own.PublicKey, rootKey)
		require.NoError(t, err)
		ownDER, err := x509.MarshalPKCS8PrivateKey(own)
		require.NoError(t, err)
		return field("CERTIFICATE", der), field("PRIVATE KEY", ownDER)
	}
}
