package dataplane

import "fmt"

// Secret is a key of 32 bytes that is never printed. The zero Secret is no key: it stands
// for keys where a plan is only shown.
type Secret [32]byte

// hidden is printed in place of a Secret.
const hidden = "(hidden)"

// String returns a placeholder.
func (Secret) String() string { return hidden }

// Format prints the placeholder, whatever the verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = fmt.Fprint(f, hidden) }

// MarshalText returns the placeholder, for encoders and log handlers.
func (Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }
