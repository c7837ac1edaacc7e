package brokertest

import (
	"crypto/sha256"

	"subctl/broker/trust"
)

// Key returns the signing key of a name, such as "administrator" or a cluster ID. It is the
// same in every test, and no secret.
func Key(name string) trust.Key {
	seed := sha256.Sum256([]byte("signing key of the tests: " + name))
	key, err := trust.ParseKey(seed[:])
	if err != nil {
		panic(err) // it has the right size
	}
	return key
}
