package trust

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func grantIn(key Key, sets ...string) Grant {
	g := aGrant(key)
	g.Sets = sets
	return g
}

// published returns what a cluster publishes in a clusterset.
func published(t testing.TB, token, set string) string {
	t.Helper()
	tokens, err := Published(token)
	require.NoError(t, err)
	require.Contains(t, tokens, set)
	return tokens[set]
}

// The tree is the one of RFC 6962: computed here by the definition, from the leaves.
func TestTree(t *testing.T) {
	var of func(leaves []digest) digest
	of = func(leaves []digest) digest {
		if len(leaves) == 1 {
			return leaves[0]
		}
		left := of(leaves[:len(leaves)/2])
		right := of(leaves[len(leaves)/2:])
		return sha256.Sum256([]byte("\x01" + string(left[:]) + string(right[:])))
	}
	for _, n := range []int{0, 1, 3, 1024, 1025} {
		var sets []string
		for i := range n {
			sets = append(sets, fmt.Sprintf("set-%d", i))
		}
		tree, err := newTree(digest{byte(n)}, sets)
		require.NoError(t, err)
		require.Equal(t, of(tree.levels[0]), tree.root())
		require.Len(t, tree.levels[0], map[bool]int{false: 1 << minDepth, true: 1 << maxDepth}[n > 1<<minDepth],
			"the size says nothing")
		for _, set := range sets {
			p, ok := tree.proof(set)
			require.True(t, ok)
			require.Equal(t, tree.root(), p.root(), set)
			leaf := sha256.Sum256([]byte("\x00" + string(p.salt[:]) + set))
			require.Equal(t, digest(leaf), tree.levels[0][p.index])
		}
		_, ok := tree.proof("other")
		require.False(t, ok)
	}
	_, err := newTree(digest{}, make([]string, MaxSets+1))
	require.Error(t, err)
	one, err := newTree(digest{1}, []string{"a"})
	require.NoError(t, err)
	two, err := newTree(digest{2}, []string{"a"})
	require.NoError(t, err)
	require.NotEqual(t, one.proofs["a"].index, two.proofs["a"].index, "the position is random")
}

// What is published in a clusterset proves that the cluster is in it, and says nothing of the
// others.
func TestPublishedGrants(t *testing.T) {
	admin := newKey(t)
	invitee := newKey(t)
	east := newKey(t)
	token, err := admin.SignGrant(grantIn(east, "hub", "default", "hub"))
	require.NoError(t, err)
	invitation, err := admin.SignInvitation(Invitation{
		Key:      invitee.Public(),
		Cluster:  "east",
		Gateways: 2,
		Sets:     []string{"default", "hub", "secret"},
		Serial:   500,
		Expires:  2000,
	})
	require.NoError(t, err)
	i, err := admin.Public().Invitation(invitation)
	require.NoError(t, err)
	require.Equal(t, []string{"default", "hub", "secret"}, i.Sets)
	invited, err := invitee.SignInvitedGrant(grantIn(east, "default", "hub"), invitation)
	require.NoError(t, err)
	for name, token := range map[string]string{"of the administrator": token, "invited": invited} {
		g, err := admin.Public().Grant(token)
		require.NoError(t, err, name)
		require.Equal(t, []string{"default", "hub"}, g.Sets, name)
		require.True(t, g.Whole)
		claimed, err := ClaimedGrant(token)
		require.NoError(t, err)
		require.Equal(t, g, claimed)

		tokens, err := Published(token)
		require.NoError(t, err)
		require.Len(t, tokens, 2)
		for set, text := range tokens {
			g, err := admin.Public().Grant(text)
			require.NoError(t, err, name)
			require.Equal(t, []string{set}, g.Sets)
			require.False(t, g.Whole)
			require.Equal(t, Bare(token), Bare(text), "it is the same grant")
			disclosed := len(text) - len(Bare(text))
			require.Less(t, disclosed, 1100, "%s: %d bytes", name, disclosed)
		}
		g, err = admin.Public().Grant(Bare(token))
		require.NoError(t, err)
		require.Empty(t, g.Sets)
		_, err = Published(tokens["hub"])
		require.Error(t, err, "it does not have the others")
		_, err = Published(Bare(token))
		require.Error(t, err)
	}
	again, err := admin.SignGrant(grantIn(east, "default", "hub"))
	require.NoError(t, err)
	require.NotEqual(t, Bare(token), Bare(again), "nobody can compare two grants by their roots")
	leaving, err := east.SignLeaving(token, 1)
	require.NoError(t, err)
	require.NotContains(t, leaving, separator)
	_, err = admin.SignGrant(grantIn(east, "Not A Label"))
	require.Error(t, err)
}

// Whoever changes what a token discloses can hide clustersets, but not add any.
func TestHostileDisclosures(t *testing.T) {
	admin := newKey(t)
	invitee := newKey(t)
	east := newKey(t)
	sign := func(sets ...string) string {
		token, err := admin.SignGrant(grantIn(east, sets...))
		require.NoError(t, err)
		return token
	}
	token := sign("a", "b")
	other := sign("b", "c")
	bare, all, _ := strings.Cut(token, separator)
	_, a, _ := strings.Cut(published(t, token, "a"), separator)
	_, c, _ := strings.Cut(published(t, other, "c"), separator)
	invitation, err := admin.SignInvitation(
		Invitation{
			Key:      invitee.Public(),
			Cluster:  "east",
			Gateways: 2,
			Sets:     []string{"a", "b"},
			Serial:   500,
			Expires:  2000,
		},
	)
	require.NoError(t, err)
	_, bounds, _ := strings.Cut(invitation, separator)
	invited, err := invitee.SignInvitedGrant(grantIn(east, "a", "c"), invitation)
	require.NoError(t, err)
	inA := func() string { // the invitee can publish this
		_, tree, err := parseWhole(strings.Split(invited, separator)[1])
		require.NoError(t, err)
		p, _ := tree.proof("a")
		return Bare(invited) + separator + p.String()
	}()

	_, tree, err := parseWhole(all)
	require.NoError(t, err)
	altered := func(change func(p *proof)) string {
		p, ok := tree.proof("a")
		require.True(t, ok)
		change(&p)
		return bare + separator + p.String()
	}
	require.Equal(t, bare+separator+a, altered(func(*proof) {}))
	cases := map[string]string{
		"of another grant":               bare + separator + c,
		"another name":                   altered(func(p *proof) { p.set = "c" }),
		"a name that is no label":        altered(func(p *proof) { p.set = "A" }),
		"no name":                        altered(func(p *proof) { p.set = "" }),
		"a name of 64 characters":        altered(func(p *proof) { p.set = strings.Repeat("a", 64) }),
		"another salt":                   altered(func(p *proof) { p.salt[0]++ }),
		"another position":               altered(func(p *proof) { p.index ^= 1 }),
		"a negative position":            altered(func(p *proof) { p.index = -1 }),
		"a position outside of the tree": altered(func(p *proof) { p.index += 1 << minDepth }),
		"another path":                   altered(func(p *proof) { p.path[3][0]++ }),
		"a path that is too short":       altered(func(p *proof) { p.path = p.path[:minDepth-1] }),
		"a path that is longer":          altered(func(p *proof) { p.path = append(p.path, digest{}) }),
		"a path that is too long":        altered(func(p *proof) { p.path = append(p.path, make([]digest, 3)...) }),
		"no path":                        altered(func(p *proof) { p.path = nil }),
		"the hash of a leaf as a salt":   altered(func(p *proof) { p.salt, p.path = p.path[0], p.path[1:] }),
		"a node for a leaf": altered(
			func(p *proof) { p.salt, p.path, p.index = leafOf(p.salt, p.set), p.path[1:], p.index/2 }),
		"the root, and no path":      bare + separator + "a.0." + tree.root().String(),
		"a position in another form": strings.Replace(bare+separator+a, "a.", "a.0", 1),
		"damaged base64":             strings.Replace(bare+separator+a, "a.", "a.!", 1),
		"bytes that are cut off":     bare + separator + a[:len(a)-4],
		"the same twice":             bare + separator + a + separator + a,
		"two clustersets": published(t, token, "a") + separator +
			strings.Split(published(t, token, "b"), separator)[1],
		"many":                                 bare + strings.Repeat(separator+a, 5000),
		"an empty one":                         bare + separator,
		"all of another grant":                 bare + separator + strings.Split(other, separator)[1],
		"one more":                             token + ",c",
		"one fewer":                            strings.TrimSuffix(token, ",b"),
		"in another order":                     strings.Replace(token, ".a,b", ".b,a", 1),
		"the same name twice":                  strings.Replace(token, ".a,b", ".a,a,b", 1),
		"names that are no labels":             strings.Replace(token, ".a,b", ".a b", 1),
		"too many names":                       token + strings.Repeat(",c", MaxSets),
		"very long":                            token + strings.Repeat("x", maxDisclosed),
		"a secret that is too short":           bare + separator + all[4:],
		"a clusterset of an invitation":        token + separator + bounds,
		"invited to fewer clustersets":         invited,
		"without the proof of the invitation":  inA,
		"the proof of the grant for both":      inA + separator + strings.Split(inA, separator)[1],
		"another disclosure of the invitation": inA + separator + a,
	}
	for name, token := range cases {
		t.Run(name, func(t *testing.T) {
			g, err := admin.Public().Grant(token)
			require.Error(t, err)
			require.Zero(t, g)
			require.Less(t, len(err.Error()), 400, "it is reported")
		})
	}
	_, err = admin.Public().Grant(inA + separator + bounds)
	require.NoError(t, err, "within the invitation")
	for name, token := range map[string]string{
		"two disclosures": invitation + separator + bounds,
		"of a grant":      Bare(invitation) + separator + all,
		"an earlier version": func() string {
			s, _ := admin.sign(typeInvitation, Invitation{Key: invitee.Public(), Cluster: "east"})
			return s
		}(),
		"without a cluster": func() string {
			s, _ := admin.SignInvitation(Invitation{Key: invitee.Public()})
			return s
		}(),
		"one more clusterset":   invitation + ",c",
		"a clusterset repeated": invitation + ",b",
	} {
		_, err := admin.Public().Invitation(token)
		require.Error(t, err, name)
	}
}

// No text makes a grant disclose what it does not commit to.
func FuzzDisclosures(f *testing.F) {
	admin := newKey(f)
	east := newKey(f)
	sets := []string{"a", "b"}
	token, err := admin.SignGrant(grantIn(east, sets...))
	require.NoError(f, err)
	bare, whole, _ := strings.Cut(token, separator)
	for _, set := range sets {
		_, proof, _ := strings.Cut(published(f, token, set), separator)
		f.Add(proof)
	}
	f.Add(whole)
	f.Add("")
	f.Fuzz(func(t *testing.T, disclosed string) {
		g, err := admin.Public().Grant(bare + separator + disclosed)
		if err != nil {
			return
		}
		for _, set := range g.Sets {
			require.Contains(t, sets, set)
		}
		require.True(t, !g.Whole || slices.Equal(sets, g.Sets))
	})
}

func BenchmarkGrant(b *testing.B) {
	admin := newKey(b)
	east := newKey(b)
	whole, err := admin.SignGrant(grantIn(east, "a", "b"))
	require.NoError(b, err)
	for name, token := range map[string]string{
		"whole":     whole,
		"published": published(b, whole, "a"),
		"bare":      Bare(whole),
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				_, err := admin.Public().Grant(token)
				require.NoError(b, err)
			}
		})
	}
}

// A hub with as many clustersets as a tree has leaves.
func BenchmarkHub(b *testing.B) {
	var sets []string
	for i := range 1 << minDepth {
		sets = append(sets, fmt.Sprintf("spoke-%04d", i))
	}
	admin := newKey(b)
	hub := newKey(b)
	token, err := admin.SignGrant(grantIn(hub, sets...))
	require.NoError(b, err)
	b.Run("verify", func(b *testing.B) {
		for b.Loop() {
			_, err := admin.Public().Grant(token)
			require.NoError(b, err)
		}
	})
	b.Run("publish", func(b *testing.B) {
		for b.Loop() {
			tokens, err := Published(token)
			require.NoError(b, err)
			require.Len(b, tokens, len(sets))
		}
	})
}
