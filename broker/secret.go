package broker

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// Secret is bytes that never show: every format verb, encoder and log handler
// gets the word "redacted".
type Secret []byte

const redacted = "redacted"

func (s Secret) String() string { return redacted }

// Format makes every verb print the same, %x and %d among them.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = fmt.Fprint(f, redacted) }

// MarshalText keeps encoding/json and log/slog from seeing the bytes.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// Fingerprint returns 32 hexadecimal digits that tell two pre-shared keys apart
// and say nothing about either. The key must be random: of a guessable one a
// fingerprint is as good as the key.
func Fingerprint(psk Secret) string {
	mac := hmac.New(sha256.New, psk)
	mac.Write([]byte("submariner.io/psk-fingerprint"))
	return hex.EncodeToString(mac.Sum(nil)[:16])
}
