package keys_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/cable/keys"
)

// The key pairs of RFC 7748, section 6.1.
const (
	alicePrivate = "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a"
	bobPrivate   = "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb"
	bobPublic    = "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"
)

func private(t *testing.T, digits string) keys.PrivateKey {
	t.Helper()
	b, err := hex.DecodeString(digits)
	require.NoError(t, err)
	k, err := keys.ParsePrivate(b)
	require.NoError(t, err)
	return k
}

func psk() []byte { return bytes.Repeat([]byte{7}, 48) }

func TestPublicKeyOfRFC7748(t *testing.T) {
	b, err := hex.DecodeString(bobPublic)
	require.NoError(t, err)
	require.Equal(t, base64.StdEncoding.EncodeToString(b), private(t, bobPrivate).Public().String())
}

// What clusters of different versions must agree on for ever; computed by another
// implementation of X25519 and HKDF.
func TestVectors(t *testing.T) {
	a := private(t, alicePrivate)
	b := private(t, bobPrivate)
	for purpose, want := range map[string]string{
		keys.WireGuardPSK: "3a5f952298210e1bff17e6d8ba98096d5b5098685be20e1bd851923cf6243e48",
		keys.IPsecPSK:     "ad46a78f046c9f888a8f51102b10b491b020989bf13af9c3b10b20a3dd334fcc",
	} {
		t.Run(purpose, func(t *testing.T) {
			here, err := keys.PairKey(a, b.Public(), psk(), "east", "west", purpose)
			require.NoError(t, err)
			there, err := keys.PairKey(b, a.Public(), psk(), "west", "east", purpose)
			require.NoError(t, err)
			require.Equal(t, here, there)
			require.Equal(t, want, hex.EncodeToString(here))
		})
	}
}

// Every input counts, and moving a letter from one input to the next does too.
func TestEveryInputCounts(t *testing.T) {
	a := private(t, alicePrivate)
	b := private(t, bobPrivate)
	other, err := keys.Generate()
	require.NoError(t, err)
	seen := map[string]string{}
	for name, f := range map[string]func() ([]byte, error){
		"as is":   func() ([]byte, error) { return keys.PairKey(a, b.Public(), psk(), "east", "west", "p") },
		"psk":     func() ([]byte, error) { return keys.PairKey(a, b.Public(), psk()[1:], "east", "west", "p") },
		"cluster": func() ([]byte, error) { return keys.PairKey(a, b.Public(), psk(), "east", "west2", "p") },
		"moved":   func() ([]byte, error) { return keys.PairKey(a, b.Public(), psk(), "eastw", "est", "p") },
		"purpose": func() ([]byte, error) { return keys.PairKey(a, b.Public(), psk(), "east", "west", "q") },
		"remote":  func() ([]byte, error) { return keys.PairKey(a, other.Public(), psk(), "east", "west", "p") },
		"private": func() ([]byte, error) { return keys.PairKey(other, b.Public(), psk(), "east", "west", "p") },
	} {
		key, err := f()
		require.NoError(t, err, name)
		require.Len(t, key, keys.Size)
		require.NotContains(t, seen, string(key), "%s and %s", name, seen[string(key)])
		seen[string(key)] = name
	}
}

func TestRefused(t *testing.T) {
	a := private(t, alicePrivate)
	b := private(t, bobPrivate)
	for name, err := range map[string]error{
		"no private key": second(keys.PairKey(keys.PrivateKey{}, b.Public(), psk(), "a", "b", "p")),
		"no psk":         second(keys.PairKey(a, b.Public(), nil, "a", "b", "p")),
		"one cluster":    second(keys.PairKey(a, b.Public(), psk(), "a", "a", "p")),
		"no cluster":     second(keys.PairKey(a, b.Public(), psk(), "a", "", "p")),
		"no purpose":     second(keys.PairKey(a, b.Public(), psk(), "a", "b", "")),
		"own key":        second(keys.PairKey(a, a.Public(), psk(), "a", "b", "p")),
		"short private":  second(keys.ParsePrivate(make([]byte, 31))),
		"not base64":     second(keys.ParsePublic("!")),
		"short public":   second(keys.ParsePublic("AAAA")),
	} {
		require.Error(t, err, name)
	}
}

// The points of small order of Curve25519 (https://cr.yp.to/ecdh.html#validate).
func TestLowOrderPoints(t *testing.T) {
	a := private(t, alicePrivate)
	for _, digits := range []string{
		"0000000000000000000000000000000000000000000000000000000000000000",
		"0100000000000000000000000000000000000000000000000000000000000000",
		"e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
		"5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
		"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	} {
		b, err := hex.DecodeString(digits)
		require.NoError(t, err)
		p, err := keys.ParsePublic(base64.StdEncoding.EncodeToString(b))
		require.NoError(t, err)
		_, err = keys.PairKey(a, p, psk(), "east", "west", keys.IPsecPSK)
		require.ErrorContains(t, err, "low order", digits)
	}
}

func TestSecretsDoNotShow(t *testing.T) {
	k := private(t, bobPrivate)
	asJSON, err := json.Marshal(map[string]any{"k": k})
	require.NoError(t, err)
	out := fmt.Sprintf("%v %+v %#v %s %q %x %d %v %s", k, k, k, k, k, k, k, struct{ K keys.PrivateKey }{k}, asJSON)
	require.NotContains(t, out, bobPrivate[:16])
	require.NotContains(t, out, base64.StdEncoding.EncodeToString(k.Bytes())[:16])
	require.NotContains(t, out, fmt.Sprint(k.Bytes()[:4])[1:8])
	require.Contains(t, out, k.Public().String())
}

func TestRoundTrip(t *testing.T) {
	k, err := keys.Generate()
	require.NoError(t, err)
	again, err := keys.ParsePrivate(k.Bytes())
	require.NoError(t, err)
	require.Equal(t, k.Public(), again.Public())
	p, err := keys.ParsePublic(k.Public().String())
	require.NoError(t, err)
	require.Equal(t, k.Public(), p)
}

func second[T any](_ T, err error) error { return err }
