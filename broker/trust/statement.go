package trust

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Statement is an object as its cluster published it.
type Statement struct {
	// Kind and Name are the object's.
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Set is the clusterset for which the object is published; empty for every clusterset that
	// the signer is in.
	Set string `json:"set,omitempty"`
	// Sequence grows with every version of the object. It is at least the time of the signature,
	// in milliseconds since 1970, so that an object which was deleted and is made again has a
	// higher one.
	Sequence int64 `json:"sequence"`
	// Labels and Annotations are those that are copied.
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	// Fields are the fields of the object that are copied.
	Fields json.RawMessage `json:"fields"`
}

// SignStatement signs an object with the key of the cluster that publishes it, or with the
// administrator's key if it was made on the broker.
func (k Key) SignStatement(s Statement) (string, error) { return k.sign(typeStatement, s) }

// Statement verifies a statement with the public key of the cluster in whose name it is, or
// with the administrator's if the object was made on the broker. The caller compares it with the
// object that carries it.
func (p PublicKey) Statement(token string) (Statement, error) {
	var s Statement
	if err := p.verify(typeStatement, token, &s); err != nil {
		return Statement{}, fmt.Errorf("its signature is not valid: %w", err)
	}
	return s, s.check()
}

// ReadStatement returns a statement, whoever signed it. It is for tokens that were verified
// before.
func ReadStatement(token string) (Statement, error) {
	var s Statement
	if err := peek(token, &s); err != nil {
		return Statement{}, fmt.Errorf("its signature is not valid: %w", err)
	}
	return s, s.check()
}

// check returns what a statement lacks.
func (s Statement) check() error {
	if s.Kind == "" || s.Name == "" || s.Sequence <= 0 {
		return errors.New("its signature is not valid: it lacks the kind, the name or the sequence number")
	}
	return nil
}

// ClaimedStatement returns what a statement states, whoever signed it: to show it, not to trust
// it.
func ClaimedStatement(token string) (Statement, error) {
	var s Statement
	return s, peek(token, &s)
}
