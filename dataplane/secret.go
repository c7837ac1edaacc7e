package dataplane

import "fmt"

// Secret is a key of 32 bytes that nothing prints. The zero Secret is none, and
// stands for keys where a plan is only shown.
type Secret [32]byte

// hidden is what is printed in place of a Secret.
const hidden = "(hidden)"

// String returns a placeholder.
func (Secret) String() string { return hidden }

// Format makes every verb print the placeholder.
func (Secret) Format(f fmt.State, _ rune) { _, _ = fmt.Fprint(f, hidden) }

// MarshalText keeps encoders and log handlers from seeing the key.
func (Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }
