// Package secret has the types of values that are never printed: every format verb, encoder
// and log handler gets a placeholder. It does not make keys, nor keep them.
package secret

import "fmt"

// Hidden is printed in place of a secret.
const Hidden = "(hidden)"

// Bytes is a secret of any length.
type Bytes []byte

// String returns Hidden.
func (Bytes) String() string { return Hidden }

// Format implements fmt.Formatter: every verb prints Hidden.
func (Bytes) Format(f fmt.State, _ rune) { hide(f) }

// MarshalText implements encoding.TextMarshaler, for encoding/json and log/slog.
func (Bytes) MarshalText() ([]byte, error) { return []byte(Hidden), nil }

// Key is a key of 32 bytes, which can be compared. The zero Key is no key.
type Key [32]byte

// String returns Hidden.
func (Key) String() string { return Hidden }

// Format implements fmt.Formatter: every verb prints Hidden.
func (Key) Format(f fmt.State, _ rune) { hide(f) }

// MarshalText implements encoding.TextMarshaler, for encoding/json and log/slog.
func (Key) MarshalText() ([]byte, error) { return []byte(Hidden), nil }

// Clamp returns the key with the bits set that are the same in every Curve25519 private key
// (RFC 7748, section 5).
func (k Key) Clamp() Key {
	k[0] &= 0xf8
	k[31] = k[31]&0x7f | 0x40
	return k
}

func hide(f fmt.State) { _, _ = fmt.Fprint(f, Hidden) }
