package trust

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
)

// This file is the Merkle tree that commits to the clustersets of a grant, or of an invitation,
// without naming them (RFC 6962, section 2.1). What is signed has the root. A clusterset is
// disclosed by its salt and the path from its leaf to the root, which tell nothing about the
// others.
//
// All trees have 1,024 leaves, or more if there are more clustersets. The leaves that stand for no
// clusterset cannot be told from the others, and the leaves are sorted by their hashes: so neither
// the size of a tree nor the position of a leaf tells how many clustersets there are.

const (
	minDepth = 10
	maxDepth = 11
	// MaxSets is the number of clustersets that a grant may list: as many as a broker holds
	// Clusters of one cluster.
	MaxSets = 1 << maxDepth
)

// digest is a SHA-256 hash, or a key or salt of that size.
type digest [sha256.Size]byte

// String returns the digest in base64, URL-safe and without padding.
func (d digest) String() string { return base64.RawURLEncoding.EncodeToString(d[:]) }

// MarshalText implements encoding.TextMarshaler.
func (d digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *digest) UnmarshalText(text []byte) error {
	b, err := base64.RawURLEncoding.DecodeString(string(text))
	if err != nil || len(b) != len(d) || isMalleable(string(text)) {
		return fmt.Errorf("%.50q is not the base64 of %d bytes", text, len(d))
	}
	*d = digest(b)
	return nil
}

// leafOf and nodeOf begin with different bytes, so that a node is never taken for a leaf.
func leafOf(salt digest, set string) digest {
	return sha256.Sum256(slices.Concat([]byte{0}, salt[:], []byte(set)))
}

func nodeOf(left, right digest) digest {
	return sha256.Sum256(slices.Concat([]byte{1}, left[:], right[:]))
}

// tree is a Merkle tree. The first level has the leaves, the last one the root.
type tree struct {
	levels [][]digest
	proofs map[string]proof // without their paths
}

// newTree returns the tree of some clustersets. The secret determines all salts.
func newTree(secret digest, sets []string) (tree, error) {
	if len(sets) > MaxSets {
		return tree{}, fmt.Errorf("%d clustersets, and a cluster can be in at most %d", len(sets), MaxSets)
	}
	salts := hmac.New(sha256.New, secret[:])
	salt := func(of string) (d digest) {
		salts.Reset()
		salts.Write([]byte(of)) // never fails
		salts.Sum(d[:0])
		return d
	}
	size := 1 << minDepth
	for size < len(sets) {
		size *= 2
	}
	t := tree{proofs: make(map[string]proof, len(sets))}
	leaves := make([]digest, 0, size)
	for _, set := range sets {
		p := proof{set: set, salt: salt(set)}
		t.proofs[set] = p
		leaves = append(leaves, leafOf(p.salt, set))
	}
	for n := len(leaves); n < size; n++ {
		leaves = append(leaves, salt(fmt.Sprintf("leaf %d", n))) // no clusterset has a space in its name
	}
	slices.SortFunc(leaves, compareDigests)
	for set, p := range t.proofs {
		p.index, _ = slices.BinarySearchFunc(leaves, leafOf(p.salt, set), compareDigests)
		t.proofs[set] = p
	}
	t.levels = [][]digest{leaves}
	for level := leaves; len(level) > 1; t.levels = append(t.levels, level) {
		var above []digest
		for i := 0; i < len(level); i += 2 {
			above = append(above, nodeOf(level[i], level[i+1]))
		}
		level = above
	}
	return t, nil
}

func compareDigests(a, b digest) int { return bytes.Compare(a[:], b[:]) }

func (t tree) root() digest { return t.levels[len(t.levels)-1][0] }

// proof returns the proof that a clusterset is in the tree, if it is.
func (t tree) proof(set string) (proof, bool) {
	p, ok := t.proofs[set]
	if !ok {
		return p, false
	}
	at := p.index
	for _, level := range t.levels[:len(t.levels)-1] {
		p.path = append(p.path, level[at^1])
		at /= 2
	}
	return p, true
}

// proof proves that a clusterset is in a tree.
type proof struct {
	set   string
	salt  digest
	index int      // of the leaf
	path  []digest // the siblings of the leaf and of what is above it, below the root
}

// root returns the root of the tree that contains the leaf.
func (p proof) root() digest {
	at := p.index
	sum := leafOf(p.salt, p.set)
	for _, sibling := range p.path {
		if at%2 == 0 {
			sum = nodeOf(sum, sibling)
		} else {
			sum = nodeOf(sibling, sum)
		}
		at /= 2
	}
	return sum
}
