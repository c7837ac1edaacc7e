package exchange

import (
	"crypto/sha256"
	"maps"

	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker/trust"
)

// memo keeps results for some passes after they were used: see turn.
type memo[K comparable, V any] struct {
	entries map[K]*entry[V]
	pass    int
}

type entry[V any] struct {
	value V
	pass  int // in which it was used last
}

// purge is the number of passes after which unused results about tokens are removed. An object
// that was not used in the previous pass was replaced, and is not used again: what is kept of
// it would hold its memory.
const purge = 16

// of returns the result for a key, which compute computes if it is not kept.
func (m *memo[K, V]) of(key K, compute func() V) V {
	e := m.entries[key]
	if e == nil {
		if m.entries == nil {
			m.entries = map[K]*entry[V]{}
		}
		e = &entry[V]{value: compute()}
		m.entries[key] = e
	}
	e.pass = m.pass
	return e.value
}

// turn begins a new pass. Results are kept for at least n passes after they were used, and for
// less than 2n.
func (m *memo[K, V]) turn(n int) {
	if m.pass++; m.pass%n == 0 {
		maps.DeleteFunc(m.entries, func(_ K, e *entry[V]) bool { return e.pass < m.pass-n })
	}
}

// memos keep what was verified, so that nothing is verified twice. An object is known by its
// memory, which nobody changes: its UID and resourceVersion are the broker's words. The tokens
// outlive the objects when a namespace is listed again, and are the same in all clustersets
// and in the copies. They are known by their digests, as others choose how long they are.
type memos struct {
	grants  memo[tokenKey, grantResult]
	own     memo[tokenKey, map[string]string]
	revoked memo[tokenKey, trust.Revocation]
	left    memo[tokenKey, trust.Leaving]
	tokens  memo[tokenKey, bool]
	objects memo[objectKey, statementResult]
}

type tokenKey struct {
	digest [sha256.Size]byte
	key    trust.PublicKey
}

func keyOfToken(token string, key trust.PublicKey) tokenKey {
	return tokenKey{sha256.Sum256([]byte(token)), key}
}

type objectKey struct {
	object client.Object
	key    trust.PublicKey
}

type grantResult struct {
	grant trust.Grant
	err   error
}

// statementResult is the result of verifying the signature of an object.
type statementResult struct {
	sequence int64
	set      string
	err      error // it is not the object that was signed
}

func (m *memos) turn() {
	m.grants.turn(purge)
	m.own.turn(purge)
	m.revoked.turn(purge)
	m.left.turn(purge)
	m.tokens.turn(purge)
	m.objects.turn(1)
}

// grant returns the grant that an object carries.
func (m *memos) grant(o client.Object, administrator trust.PublicKey) (trust.Grant, error) {
	token := o.GetAnnotations()[submarinerv1.GrantAnnotation]
	r := m.grants.of(keyOfToken(token, administrator), func() grantResult {
		g, err := administrator.Grant(token)
		return grantResult{g, err}
	})
	return r.grant, r.err
}

// published returns what this cluster publishes of its grant, by clusterset.
func (m *memos) published(token string) map[string]string {
	return m.own.of(keyOfToken(token, trust.PublicKey{}), func() map[string]string {
		tokens, _ := trust.Published(token)
		return tokens
	})
}

// revocation returns the revocation that a Cluster carries; zero if it carries no valid one.
func (m *memos) revocation(o client.Object, administrator trust.PublicKey) trust.Revocation {
	token := o.GetAnnotations()[submarinerv1.RevocationAnnotation]
	if token == "" {
		return trust.Revocation{}
	}
	return m.revoked.of(keyOfToken(token, administrator), func() trust.Revocation {
		r, _ := administrator.Revocation(token)
		return r
	})
}

// leaving returns what a Cluster states about a cluster that has left; zero if it states nothing
// valid.
func (m *memos) leaving(o client.Object, administrator trust.PublicKey) trust.Leaving {
	token := o.GetAnnotations()[submarinerv1.LeavingAnnotation]
	if token == "" {
		return trust.Leaving{}
	}
	return m.left.of(keyOfToken(token, administrator), func() trust.Leaving {
		l, _ := administrator.Leaving(token)
		return l
	})
}

// signedBy reports whether the signature of an object is of a key, whatever it says.
func (m *memos) signedBy(o client.Object, key trust.PublicKey) bool {
	token := o.GetAnnotations()[submarinerv1.SignatureAnnotation]
	return m.tokens.of(keyOfToken(token, key), func() bool {
		_, err := key.Statement(token)
		return err == nil
	})
}

// statement returns what the signature of an object says about it. name is the object's name on
// the broker.
func (m *memos) statement(k *Kind, o client.Object, name string, key trust.PublicKey) statementResult {
	return m.objects.of(objectKey{o, key}, func() statementResult {
		token := o.GetAnnotations()[submarinerv1.SignatureAnnotation]
		var s trust.Statement
		var err error
		known := true
		if !m.tokens.of(keyOfToken(token, key), func() bool {
			known = false
			s, err = key.Statement(token)
			return err == nil
		}) {
			if known {
				_, err = key.Statement(token) // for the reason
			}
			return statementResult{err: err}
		}
		if known {
			if s, err = trust.ReadStatement(token); err != nil {
				return statementResult{err: err}
			}
		}
		return statementResult{s.Sequence, s.Set, k.differs(o, name, s)}
	})
}
