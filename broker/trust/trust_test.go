package trust

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func newKey(t testing.TB) Key {
	t.Helper()
	k, err := NewKey()
	require.NoError(t, err)
	return k
}

func nets(s ...string) (out []netip.Prefix) {
	for _, n := range s {
		out = append(out, netip.MustParsePrefix(n))
	}
	return out
}

func aGrant(key Key) Grant {
	return Grant{
		Cluster: "east", UID: "0b1a", Key: key.Public(), Networks: nets("10.1.0.0/16", "10.101.0.0/16"),
		Gateways: 2, Sets: []string{"default"}, Serial: 1000,
	}
}

// whole returns a grant whose token discloses all clustersets.
func whole(g Grant) Grant {
	g.Whole = true
	return g
}

func TestGrantIsWhatWasSigned(t *testing.T) {
	admin := newKey(t)
	east := newKey(t)
	token, err := admin.SignGrant(aGrant(east))
	require.NoError(t, err)
	g, err := admin.Public().Grant(token)
	require.NoError(t, err)
	require.Equal(t, whole(aGrant(east)), g)
	require.True(t, g.Covers(netip.MustParsePrefix("10.1.2.0/24")))
	require.False(t, g.Covers(netip.MustParsePrefix("10.0.0.0/8")), "larger than granted")
	require.False(t, g.Covers(netip.MustParsePrefix("1.1.1.1/32")))
}

func TestForgedGrants(t *testing.T) {
	admin := newKey(t)
	other := newKey(t)
	east := newKey(t)
	good, err := admin.SignGrant(aGrant(east))
	require.NoError(t, err)
	sign := func(k Key, typ string, v any) string {
		token, err := k.sign(typ, v)
		require.NoError(t, err)
		return token
	}
	header := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	parts := strings.Split(Bare(good), ".")
	rooted := func(change func(*Grant)) signedGrant {
		g := signedGrant{Grant: aGrant(east), Root: digest{1}}
		change(&g.Grant)
		return g
	}
	for name, token := range map[string]string{
		"none":               "",
		"garbage":            "garbage",
		"another key":        sign(other, typeGrant, rooted(func(*Grant) {})),
		"another type":       sign(admin, typeStatement, rooted(func(*Grant) {})),
		"payload altered":    parts[0] + "." + header(`{"cluster":"west"}`) + "." + parts[2],
		"no signature":       parts[0] + "." + parts[1] + ".",
		"algorithm none":     header(`{"alg":"none","typ":"subctl-grant+jws"}`) + "." + parts[1] + ".",
		"algorithm HMAC":     header(`{"alg":"HS256","typ":"subctl-grant+jws"}`) + "." + parts[1] + "." + parts[2],
		"too long":           Bare(good) + strings.Repeat("A", maxToken),
		"an earlier version": sign(admin, typeGrant, aGrant(east)),
		"without a key":      sign(admin, typeGrant, rooted(func(g *Grant) { g.Key = PublicKey{} })),
		"without an ID":      sign(admin, typeGrant, rooted(func(g *Grant) { g.Cluster = "" })),
		"without a serial":   sign(admin, typeGrant, rooted(func(g *Grant) { g.Serial = 0 })),
		"not JSON of a type": sign(admin, typeGrant, []int{1}),
	} {
		_, err := admin.Public().Grant(token)
		require.Error(t, err, name)
	}
	_, err = admin.Public().Grant(sign(admin, typeGrant, rooted(func(*Grant) {})))
	require.NoError(t, err, "none of that")
	_, err = PublicKey{}.Grant(good)
	require.Error(t, err, "no key is pinned")
}

// A signed text has one form. A broker could otherwise show the same object in ever new ones, each
// of which all members would copy.
func TestHostileEncodings(t *testing.T) {
	admin := newKey(t)
	invitee := newKey(t)
	east := newKey(t)
	grant, err := admin.SignGrant(aGrant(east))
	require.NoError(t, err)
	invitation, err := admin.SignInvitation(
		Invitation{
			Key:      invitee.Public(),
			Cluster:  "east",
			Gateways: 16,
			Sets:     []string{"default", "hub"},
			Serial:   500,
			Expires:  5000,
		},
	)
	require.NoError(t, err)
	invited, err := invitee.SignInvitedGrant(aGrant(east), invitation)
	require.NoError(t, err)
	published, err := Published(invited)
	require.NoError(t, err)
	revocation, err := admin.SignRevocation(Revocation{Cluster: "east", Serial: 1})
	require.NoError(t, err)
	leaving, err := east.SignLeaving(grant, 1)
	require.NoError(t, err)
	statement, err := east.SignStatement(Statement{Kind: "Cluster", Name: "east", Sequence: 1, Fields: []byte("[]")})
	require.NoError(t, err)
	verify := func(token string) (valid int) {
		p := admin.Public()
		for _, err := range []error{
			second(p.Grant(token)),
			second(p.Invitation(token)),
			second(p.Revocation(token)),
			second(p.Leaving(token)),
			second(east.Public().Statement(token)),
		} {
			if err == nil {
				valid++
			}
		}
		return valid
	}
	for name, token := range map[string]string{
		"grant":      grant,
		"bare":       Bare(grant),
		"invitation": invitation,
		"invited":    invited,
		"published":  published["default"],
		"revocation": revocation,
		"leaving":    leaving,
		"statement":  statement,
	} {
		require.Equal(t, 1, verify(token), name)
		for at := 0; at <= len(token); at += 11 {
			for _, with := range []string{"\n", "\r", " ", "\t", "=", ".", "~", "\x00"} {
				require.Zero(t, verify(token[:at]+with+token[at:]), "%s: %q at %d of %s", name, with, at, token)
			}
			if at < len(token) && at > 0 {
				require.Zero(t, verify(token[:at]+string(token[at]^1)+token[at+1:]),
					"%s: another character at %d of %s", name, at, token)
			}
		}
		for _, end := range []string{"~", "~~", ".", "~" + token} {
			require.Zero(t, verify(token+end), "%s and %q", name, end)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestInvitedGrants(t *testing.T) {
	admin := newKey(t)
	invitee := newKey(t)
	east := newKey(t)
	other := newKey(t)
	i := Invitation{
		Key: invitee.Public(), Cluster: "east", Networks: nets("10.0.0.0/8"), Gateways: 2,
		Sets: []string{"default", "hub"}, Serial: 500, Expires: 2000,
	}
	invitation, err := admin.SignInvitation(i)
	require.NoError(t, err)
	forged, err := other.SignInvitation(i)
	require.NoError(t, err)
	verify := func(k Key, g Grant, invitation string) error {
		token, err := k.SignInvitedGrant(g, invitation)
		require.NoError(t, err)
		got, err := admin.Public().Grant(token)
		if err == nil {
			require.EqualValues(t, 500, got.Invited)
			g.Invited = 500
			require.Equal(t, whole(g), got)
			require.True(t, Revocation{Cluster: "east", Serial: 500}.Revokes(got),
				"the invitation is void, and what was signed with it later")
			require.False(t, Revocation{Cluster: "east", Serial: 499}.Revokes(got))
		}
		return err
	}
	require.NoError(t, verify(invitee, aGrant(east), invitation))
	require.Error(t, verify(other, aGrant(east), invitation), "signed with another key than the invited one")
	require.Error(t, verify(other, aGrant(east), forged), "invited by somebody else")
	for name, change := range map[string]func(*Grant){
		"another cluster":       func(g *Grant) { g.Cluster = "west" },
		"a network outside":     func(g *Grant) { g.Networks = nets("10.1.0.0/16", "1.1.1.1/32") },
		"a larger network":      func(g *Grant) { g.Networks = nets("0.0.0.0/0") },
		"too many gateways":     func(g *Grant) { g.Gateways = 3 },
		"another clusterset":    func(g *Grant) { g.Sets = []string{"secret"} },
		"after it expired":      func(g *Grant) { g.Serial = 2001 },
		"before it was written": func(g *Grant) { g.Serial = 499 },
	} {
		g := aGrant(east)
		change(&g)
		require.Error(t, verify(invitee, g, invitation), name)
	}
	direct, err := invitee.SignGrant(aGrant(east))
	require.NoError(t, err)
	_, err = admin.Public().Grant(direct)
	require.Error(t, err, "an invitation's key is not the administrator's")
}

func TestRevocations(t *testing.T) {
	admin := newKey(t)
	east := newKey(t)
	token, err := admin.SignRevocation(Revocation{Cluster: "east", Serial: 1000})
	require.NoError(t, err)
	r, err := admin.Public().Revocation(token)
	require.NoError(t, err)
	require.True(t, r.Revokes(aGrant(east)))
	later := aGrant(east)
	later.Serial = 1001
	require.False(t, r.Revokes(later), "a grant that was signed since")
	west := aGrant(east)
	west.Cluster = "west"
	require.False(t, r.Revokes(west))
	require.False(t, Revocation{Cluster: "east", Set: "default", Serial: 1000}.Revokes(aGrant(east)),
		"in one clusterset")
	_, err = newKey(t).Public().Revocation(token)
	require.Error(t, err)
}

// Only who has the key of a cluster can state that the cluster has left, and only about its own
// grant.
func TestHostileLeavings(t *testing.T) {
	admin := newKey(t)
	east := newKey(t)
	other := newKey(t)
	sign := func(signer Key, g Grant) string {
		token, err := signer.SignGrant(g)
		require.NoError(t, err)
		return token
	}
	leave := func(signer Key, grant string, at int64) string {
		token, err := signer.SignLeaving(grant, at)
		require.NoError(t, err)
		return token
	}
	grant := sign(admin, aGrant(east))
	l, err := admin.Public().Leaving(leave(east, grant, 7))
	require.NoError(t, err)
	bare := aGrant(east)
	bare.Sets = nil // nobody learns of them
	require.Equal(t, Leaving{bare, 7}, l)

	parts := strings.Split(leave(east, grant, 7), ".")
	swapped := strings.Split(leave(east, sign(admin, aGrant(other)), 7), ".")
	revocation, err := admin.SignRevocation(Revocation{Cluster: "east", Serial: 9})
	require.NoError(t, err)
	statement, err := east.SignStatement(Statement{Kind: "Cluster", Name: "east", Sequence: 9})
	require.NoError(t, err)
	for name, token := range map[string]string{
		"nothing":                            "",
		"garbage":                            "a.b.c",
		"signed by another member":           leave(other, grant, 7),
		"signed by the broker's key":         leave(newKey(t), grant, 7),
		"signed by the administrator":        leave(admin, grant, 7),
		"a grant that the cluster has made":  leave(east, sign(east, aGrant(east)), 7),
		"a grant of another administrator":   leave(east, sign(other, aGrant(east)), 7),
		"without a grant":                    leave(east, "", 7),
		"without a time":                     leave(east, grant, 0),
		"the grant itself":                   grant,
		"another statement of the cluster":   statement,
		"a revocation":                       revocation,
		"the payload of another":             parts[0] + "." + swapped[1] + "." + parts[2],
		"the signature of another":           parts[0] + "." + parts[1] + "." + swapped[2],
		"more than a token":                  leave(east, strings.Repeat("x", maxToken), 7),
		"a leaving statement within another": leave(east, leave(east, grant, 7), 7),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := admin.Public().Leaving(token)
			require.ErrorContains(t, err, "the leaving statement is not valid: ")
		})
	}
	_, err = east.Public().Statement(leave(east, grant, 7))
	require.Error(t, err, "it is no other statement")
	_, err = admin.Public().Grant(leave(east, grant, 7))
	require.Error(t, err)
}

func TestStatements(t *testing.T) {
	east := newKey(t)
	s := Statement{
		Kind:     "Endpoint",
		Name:     "east-1",
		Sequence: 7,
		Fields:   json.RawMessage(`{"a":1}`),
		Labels:   map[string]string{"a": "b"},
	}
	token, err := east.SignStatement(s)
	require.NoError(t, err)
	got, err := east.Public().Statement(token)
	require.NoError(t, err)
	require.Equal(t, s, got)
	_, err = newKey(t).Public().Statement(token)
	require.ErrorContains(t, err, "signed with another key")
	grant, err := east.SignGrant(aGrant(east))
	require.NoError(t, err)
	_, err = east.Public().Statement(grant)
	require.Error(t, err, "a grant is not a statement")
}

func TestKeysArePrintedByTheirPublicHalf(t *testing.T) {
	k := newKey(t)
	seed := base64.StdEncoding.EncodeToString(k.Seed())
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%q"} {
		require.NotContains(t, fmt.Sprintf(verb, k), seed)
		require.Contains(t, fmt.Sprintf(verb, k), k.Public().String())
	}
	text, err := json.Marshal(struct{ K Key }{k})
	require.NoError(t, err)
	require.NotContains(t, string(text), seed)
	again, err := ParseKey(k.Seed())
	require.NoError(t, err)
	require.Equal(t, k.Public(), again.Public())
	public, err := ParsePublic(k.Public().String())
	require.NoError(t, err)
	require.Equal(t, k.Public(), public)
}

func FuzzGrant(f *testing.F) {
	admin := newKey(f)
	east := newKey(f)
	for _, sign := range []func() (string, error){
		func() (string, error) { return admin.SignGrant(aGrant(east)) },
		func() (string, error) { return admin.SignInvitedGrant(aGrant(east), "a.b.c") },
		func() (string, error) { return east.SignLeaving("a.b.c", 1) },
		func() (string, error) { return admin.SignStatement(Statement{Kind: "a", Name: "b", Sequence: 1}) },
	} {
		token, err := sign()
		require.NoError(f, err)
		f.Add(token)
	}
	pinned := newKey(f).Public() // nobody has its private half
	f.Fuzz(func(t *testing.T, token string) {
		_, err := pinned.Grant(token)
		require.Error(t, err)
		_, err = pinned.Statement(token)
		require.Error(t, err)
		_, err = pinned.Revocation(token)
		require.Error(t, err)
		_, err = pinned.Invitation(token)
		require.Error(t, err)
		_, err = pinned.Leaving(token)
		require.Error(t, err)
	})
}

func BenchmarkVerify(b *testing.B) {
	east := newKey(b)
	token, err := east.SignStatement(
		Statement{Kind: "Endpoint", Name: "east-1", Sequence: 7, Fields: json.RawMessage(`{"a":1}`)})
	require.NoError(b, err)
	for b.Loop() {
		_, err := east.Public().Statement(token)
		require.NoError(b, err)
	}
}
