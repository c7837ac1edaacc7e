package trust

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// This file is about the part of a token that is not signed: it discloses clustersets of the signed
// part, which has the root of their tree. The parts are separated by '~':
//
//	<JWS>                               nothing is disclosed
//	<JWS>~<whole>                       all clustersets are disclosed, as they are when a token is signed
//	<JWS>~<proof>                       one clusterset is disclosed: see Published
//
// The token of a grant that was signed with an invitation has another part of the same kind, about
// the tree of the invitation.
//
// A whole is "<secret>.<set>,<set>,…", from which everything else follows. A proof is
// "<set>.<index>.<salt and path>". Names of clustersets are DNS labels; bytes are in base64,
// URL-safe and without padding.

// maxDisclosed bounds what is parsed of the disclosures of a token, in bytes: the longest names of
// MaxSets clustersets, twice.
const maxDisclosed = 2 * MaxSets * (validation.DNS1123LabelMaxLength + 1)

const separator = "~"

// Bare returns a token without its disclosures.
func Bare(token string) string {
	jws, _, _ := strings.Cut(token, separator)
	return jws
}

// Published returns what a cluster publishes of its whole token, by clusterset: the token that
// discloses this clusterset only.
func Published(token string) (map[string]string, error) {
	parts := strings.Split(token, separator)
	if len(parts) < 2 {
		return nil, errors.New("its grant does not list its clustersets")
	}
	out := map[string]string{}
	for n, text := range parts[1:] {
		_, t, err := parseWhole(text)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			for set := range t.proofs {
				out[set] = parts[0]
			}
		}
		for set := range out {
			p, ok := t.proof(set)
			if !ok {
				return nil, fmt.Errorf("the invitation is not for clusterset %s", set)
			}
			out[set] += separator + p.String()
		}
	}
	return out, nil
}

// commit returns the root of a new tree of some clustersets, and its disclosure.
func commit(sets []string) (root digest, whole string, err error) {
	whole = newSecret().String() + "." + strings.Join(slices.Compact(slices.Sorted(slices.Values(sets))), ",")
	_, t, err := parseWhole(whole)
	if err != nil {
		return root, "", fmt.Errorf("signing: %w", err)
	}
	return t.root(), whole, nil
}

// disclosures are the parts of a token that are not signed. Others may have written them.
type disclosures []string

// split returns the signed part of a token and the others.
func split(token string) (jws string, d disclosures, err error) {
	jws, rest, ok := strings.Cut(token, separator)
	switch {
	case !ok:
		return jws, nil, nil
	case len(rest) > maxDisclosed:
		return "", nil, fmt.Errorf("it discloses clustersets in %d bytes, more than %d", len(rest), maxDisclosed)
	case strings.Count(rest, separator) > 1:
		return "", nil, errors.New("it has more than two disclosures")
	}
	return jws, strings.Split(rest, separator), nil
}

// open returns the clustersets, sorted, that disclosure n discloses of the tree with a root, and
// whether these are all clustersets of the tree. Without a disclosure, there are none.
func (d disclosures) open(n int, root digest) (sets []string, whole bool, err error) {
	if n >= len(d) {
		return nil, false, nil
	}
	var is digest
	if _, rest, _ := strings.Cut(d[n], "."); strings.Contains(rest, ".") {
		p, err := parseProof(d[n])
		if err != nil {
			return nil, false, err
		}
		sets = []string{p.set}
		is = p.root()
	} else {
		names, t, err := parseWhole(d[n])
		if err != nil {
			return nil, false, err
		}
		sets = names
		is = t.root()
		whole = true
	}
	if is != root {
		return nil, false, errors.New("it discloses clustersets that were not signed")
	}
	return sets, whole, nil
}

func parseWhole(text string) (sets []string, t tree, err error) {
	key, list, _ := strings.Cut(text, ".")
	var secret digest
	if err := secret.UnmarshalText([]byte(key)); err != nil {
		return nil, t, err
	}
	if list != "" {
		sets = strings.Split(list, ",")
	}
	for i, set := range sets {
		if err := checkSet(set); err != nil {
			return nil, t, err
		}
		if i > 0 && set <= sets[i-1] {
			return nil, t, fmt.Errorf("its clustersets are not sorted: %s comes after %s", set, sets[i-1])
		}
	}
	t, err = newTree(secret, sets)
	return sets, t, err
}

func parseProof(text string) (p proof, err error) {
	bad := errors.New("its proof of a clusterset cannot be read")
	parts := strings.Split(text, ".")
	if len(parts) != 3 || len(parts[2]) > base64.RawURLEncoding.EncodedLen((1+maxDepth)*len(p.salt)) {
		return p, bad
	}
	p.set = parts[0]
	if err := checkSet(p.set); err != nil {
		return p, err
	}
	if p.index, err = strconv.Atoi(parts[1]); err != nil || strconv.Itoa(p.index) != parts[1] {
		return p, bad
	}
	b, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil || isMalleable(parts[2]) || len(b)%len(p.salt) != 0 {
		return p, bad
	}
	for chunk := range slices.Chunk(b, len(p.salt)) {
		p.path = append(p.path, digest(chunk))
	}
	if depth := len(p.path) - 1; depth < minDepth || depth > maxDepth || p.index < 0 || p.index >= 1<<depth {
		return p, bad
	}
	p.salt, p.path = p.path[0], p.path[1:]
	return p, nil
}

// String returns the proof as it is in a token.
func (p proof) String() string {
	b := p.salt[:]
	for _, d := range p.path {
		b = append(b, d[:]...)
	}
	return fmt.Sprintf("%s.%d.%s", p.set, p.index, base64.RawURLEncoding.EncodeToString(b))
}

func checkSet(set string) error {
	if len(validation.IsDNS1123Label(set)) > 0 {
		return fmt.Errorf("%.70q is not the name of a clusterset", set)
	}
	return nil
}
