package dataplane

import "subctl/internal/secret"

// Secret is a key of 32 bytes that is never printed. The zero Secret is no key: it stands
// for keys where a plan is only shown.
type Secret = secret.Key
