package broker

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// Secret is a secret that is never printed: format verbs, encoders and log handlers get the
// word "redacted".
type Secret []byte

const redacted = "redacted"

func (s Secret) String() string { return redacted }

// Format implements fmt.Formatter: every verb prints "redacted".
func (s Secret) Format(f fmt.State, _ rune) { _, _ = fmt.Fprint(f, redacted) }

// MarshalText implements encoding.TextMarshaler, for encoding/json and log/slog.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// Fingerprint returns 32 hexadecimal digits that distinguish pre-shared keys and reveal
// nothing about a random key. A key that can be guessed can be found from its fingerprint.
func Fingerprint(psk Secret) string {
	mac := hmac.New(sha256.New, psk)
	mac.Write([]byte("submariner.io/psk-fingerprint"))
	return hex.EncodeToString(mac.Sum(nil)[:16])
}
