package broker

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"

	"subctl/internal/secret"
)

// Secret is a token or a pre-shared key. It is never printed.
type Secret = secret.Bytes

// Fingerprint returns 32 hexadecimal digits that distinguish pre-shared keys and reveal
// nothing about a random key. A key that can be guessed can be found from its fingerprint.
func Fingerprint(psk Secret) string {
	mac := hmac.New(sha256.New, psk)
	mac.Write([]byte("submariner.io/psk-fingerprint"))
	return hex.EncodeToString(mac.Sum(nil)[:16])
}
