package rest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// made returns a certificate for a key, and the key, as base64 of PEM.
func made(t *testing.T, key crypto.Signer, ca bool) (cert, private string) {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "site-1"},
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  ca,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	encode := func(block string, der []byte) string {
		return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: block, Bytes: der}))
	}
	return encode("CERTIFICATE", der), encode("PRIVATE KEY", pkcs8)
}

func TestIdentity(t *testing.T) {
	first, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	second, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	cert1, key1 := made(t, first, false)
	cert2, key2 := made(t, second, false)
	ca, caKey := made(t, first, true)
	conns := []Connection{{Name: "c", Type: "tunnel", Mode: "start"}}
	for _, test := range []struct{ name, cert, key, ca, want string }{
		{"one", cert1, key1, ca, ""},
		{
			"two, in another order, and an authority between",
			cert2 + "___" + ca + "___" + cert1,
			key1 + "___" + key2,
			ca,
			"",
		},
		{
			"none",
			"",
			" ",
			"",
			"local_public_cert: required for the authentication method pubkey; local_private_cert: required for the authentication method pubkey; shared_ca: required for the authentication method pubkey",
		},
		{
			"another key",
			cert1,
			key2,
			ca,
			`local_private_cert: key 1 belongs to none of the certificates in local_public_cert: provide the certificate of this key; local_public_cert: certificate 1 ("CN=site-1") belongs to none of the keys in local_private_cert: provide its key`,
		},
		{
			"a certificate too many",
			cert1 + "___" + cert2,
			key1,
			ca,
			`local_public_cert: certificate 2 ("CN=site-1") belongs to none of the keys in local_private_cert: provide its key`,
		},
		{
			"swapped",
			key1,
			cert1,
			ca,
			`local_public_cert: part 1: it has a block of type "PRIVATE KEY" instead of CERTIFICATE; local_private_cert: part 1: it has a block of type "CERTIFICATE" instead of an unencrypted PRIVATE KEY, RSA PRIVATE KEY or EC PRIVATE KEY`,
		},
		{
			"garbage",
			"%%",
			"AAAA",
			ca + "___",
			`local_public_cert: part 1 is not base64 of PEM; local_private_cert: part 1 has no PEM: provide base64 of a file that begins with -----BEGIN; shared_ca: part 2 has no PEM: provide base64 of a file that begins with -----BEGIN`,
		},
		{"the authority's own key", ca, caKey, ca, ""},
	} {
		o := &Remote{
			Name:        "hub",
			Gateway:     "any",
			Auth:        "pubkey",
			LocalCert:   test.cert,
			LocalKey:    test.key,
			CA:          test.ca,
			Connections: conns,
		}
		err := Remotes.Check(o)
		if test.want != "" {
			require.EqualError(t, err, test.want, test.name)
			continue
		}
		require.NoError(t, err, test.name)
		id, err := o.Identity()
		require.NoError(t, err)
		for i, der := range id.Keys {
			key, err := x509.ParsePKCS8PrivateKey(der)
			require.NoError(t, err)
			cert, err := x509.ParseCertificate(id.Certificates[i])
			require.NoError(t, err)
			require.Equal(t, key.(crypto.Signer).Public(), cert.PublicKey, "certificate %d is not that of key %d", i, i)
		}
	}
}

// Remotes without certificates: what is required, and that a key is never shown.
func TestCheckRemote(t *testing.T) {
	conn := Connection{
		Name:           "a",
		Type:           "tunnel",
		Mode:           "start",
		LocalSubnet:    "172.12.0.0/24, 10.239.160.22",
		RemoteSourceIP: "172.12.0.30-172.12.0.45",
	}
	require.NoError(
		t,
		Remotes.Check(
			&Remote{Name: "hub", Gateway: "%any", Auth: "psk", PreSharedKey: "xxx", Connections: []Connection{conn}}),
	)
	for gateway, valid := range map[string]bool{
		"192.0.2.1":        true,
		"fd00::1":          true,
		"hub.example.com":  true,
		"hub.example.com.": true,
		"hub":              true,
		"4.hub1":           true,
		"192.0.2.300":      false,
		"192.0.2.":         false,
		"192.0.2.1.7":      false,
		"300":              false,
		"hub.7":            false,
	} {
		err := Remotes.Check(
			&Remote{Name: "hub", Gateway: gateway, Auth: "psk", PreSharedKey: "xxx", Connections: []Connection{conn}})
		require.Equal(t, valid, err == nil, "%s: %v", gateway, err)
	}
	require.EqualError(
		t,
		Remotes.Check(
			&Remote{
				Name:          "hub",
				PreSharedKey:  "sesame\x00open",
				Gateway:       "a b",
				ForceProposal: "yes",
				Connections: []Connection{{Name: "a", Type: "vti"}, {
					Name:           "a",
					Type:           "transport",
					Mode:           "add",
					LocalSubnet:    "x",
					RemoteSourceIP: "1-2",
					LocalSourceIP:  "%config,%conf",
					Mark:           "m",
					IfID:           "%unique",
					LocalFirewall:  "1",
				}},
			},
		),
		`pre_shared_key: it contains a control character: remove it; gateway: "a b" is neither an address, nor a DNS name, nor any; force_crypto_proposal: "yes" is not one of 0, 1; authentication_method: "" is not one of psk, pubkey; `+
			`connections[0].conn_type: "vti" is not one of tunnel, transport; connections[0].mode: required; connections[1].local_subnet: "x" is neither an address nor a network such as 192.0.2.0/24; `+
			`connections[1].local_sourceip: "%conf" is neither %config, nor an address, a network, or a range such as 192.0.2.30-192.0.2.45; connections[1].remote_sourceip: "1-2" is neither %config, nor an address, a network, or a range such as 192.0.2.30-192.0.2.45; `+
			`connections[1].local_firewall: "1" is not one of yes, no; connections[1].mark: "m" is not a mark such as 0x10 or 0x10/0xff; connections[1].name: another connection is named "a"`,
	)
}

// A certificate that other ends do not accept is known, and only such a one.
func TestDoubts(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{Organization: []string{"Example"}, CommonName: "edge"},
		NotBefore:    from,
		NotAfter:     from.AddDate(0, 1, 0),
		DNSNames: []string{
			"edge.test",
			"*.sites.test",
		},
		EmailAddresses:        []string{"edge@example.org"},
		IPAddresses:           []net.IP{net.IPv4(192, 0, 2, 7)},
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	text := func(block string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: block, Bytes: der}))
	}
	o := &Remote{
		Auth:      "pubkey",
		LocalCert: text("CERTIFICATE", der),
		LocalKey:  text("PRIVATE KEY", pkcs8),
		CA:        text("CERTIFICATE", der),
	}
	require.Equal(t, []string{
		`local_public_cert: certificate 1 ("CN=edge,O=Example") has expired, at 2026-02-01T00:00:00Z: provide a new one`,
		`shared_ca: certificate 1 ("CN=edge,O=Example") has expired, at 2026-02-01T00:00:00Z: provide a new one`,
	}, o.Doubts(from.AddDate(0, 2, 0)))
	require.Contains(t, o.Doubts(from.Add(-time.Second))[0], "is not valid before 2026-01-01T00:00:00Z")
	for id, known := range map[string]bool{
		"":                         true,
		"%any":                     true,
		"edge.test":                true,
		"@EDGE.test":               true,
		"a.sites.test":             true,
		"edge@example.org":         true,
		"192.0.2.7":                true,
		"O=Example, CN=edge":       true,
		"/CN=edge/O=Example":       true,
		"keyid:00":                 true,
		"asn1dn:#30":               true,
		"O=*, CN=edge":             true,
		"edge":                     false,
		"hub.test":                 false,
		"hub@example.org":          false,
		"192.0.2.8":                false,
		"2001:db8::1":              false,
		"CN=edge":                  false,
		"O=Example, CN=hub":        false,
		"C=CH, O=Example, CN=edge": false,
	} {
		o.LocalID = id
		if doubts := o.Doubts(time.Time{}); known {
			require.Empty(t, doubts, id)
		} else {
			require.Len(t, doubts, 1, id)
			require.Contains(t, doubts[0], "local_identifier: the certificate in local_public_cert does not contain")
		}
	}
	require.Empty(t, (&Remote{Auth: "psk"}).Doubts(from))
	require.Empty(t, (&Remote{Auth: "pubkey", LocalCert: "x"}).Doubts(from))
}
