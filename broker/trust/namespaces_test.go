package trust

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMayExport(t *testing.T) {
	for _, test := range []struct {
		patterns []string
		may, not []string
	}{
		{
			nil,
			[]string{"default", "shop", "kube", "openshift", "submariner"},
			[]string{"kube-system", "kube-", "openshift-dns", "submariner-operator", "submariner-k8s-broker-a"},
		},
		{
			[]string{"shop", "team-*"},
			[]string{"shop", "team-", "team-a"},
			[]string{"default", "shop-2", "sho", "team", "kube-system"},
		},
		{[]string{"kube-system"}, []string{"kube-system"}, []string{"kube-public", "default"}},
		{[]string{"*"}, []string{"default", "kube-system", "submariner-operator"}, nil},
	} {
		for _, ns := range test.may {
			require.True(t, Grant{ExportNamespaces: test.patterns}.MayExport(ns), "%v %s", test.patterns, ns)
		}
		for _, ns := range test.not {
			require.False(t, Grant{ExportNamespaces: test.patterns}.MayExport(ns), "%v %s", test.patterns, ns)
		}
	}
}

func TestCheckNamespaces(t *testing.T) {
	require.NoError(t, CheckNamespaces("--x", nil))
	require.NoError(t, CheckNamespaces("--x", []string{"*", "a", "a-*", "a*", "0-9"}))
	err := CheckNamespaces("--x", []string{"", "A", "a", "**", "*a", "a*b", "-a", "a-", "a.b", "a b"})
	for _, wrong := range []string{"", "A", "**", "*a", "a*b", "-a", "a-", "a.b", "a b"} {
		require.ErrorContains(
			t,
			err,
			fmt.Sprintf(
				"--x: %q is neither the name of a namespace nor the beginning of one with * at its end, such as team-*",
				wrong),
		)
	}
	require.NotContains(t, err.Error(), `"a" is neither`)
	require.ErrorContains(t, CheckNamespaces("--x", slices.Repeat([]string{"a"}, 65)),
		"--x: 65 namespaces are more than 64")
	require.Equal(t, []string{"a", "b"}, SortNamespaces([]string{"b", "a", "b"}))
	require.Nil(t, SortNamespaces(nil))
}

// Who is invited grants itself no exports beyond the invitation.
func TestHostileInviteeExports(t *testing.T) {
	for _, test := range []struct{ invited, granted, refused []string }{
		{nil, nil, nil},
		{nil, []string{"shop", "team-*", "kubernetes"}, nil},
		{nil, []string{"kube-system"}, []string{"kube-system", "it names none"}},
		{nil, []string{"a", "*"}, []string{`"*"`, "it names none"}},
		{nil, []string{"k*"}, []string{`"k*"`}},
		{nil, []string{"submariner-op*"}, []string{`"submariner-op*"`}},
		{[]string{"shop", "team-*"}, []string{"shop"}, nil},
		{[]string{"shop", "team-*"}, []string{"team-*", "team-a-*", "team-b"}, nil},
		{
			[]string{"shop", "team-*"},
			nil,
			[]string{"the invitation covers exports from namespaces shop, team-*, not from all"},
		},
		{[]string{"shop", "team-*"}, []string{"shop", "t*"}, []string{"shop, team-*, not from t*"}},
		{[]string{"shop", "team-*"}, []string{"shop-*"}, []string{"not from shop-*"}},
		{[]string{"shop", "team-*"}, []string{"*"}, []string{"not from *"}},
		{[]string{"kube-*"}, []string{"kube-system"}, nil},
		{[]string{"*"}, nil, nil},
		{[]string{"*"}, []string{"*"}, nil},
	} {
		t.Run(fmt.Sprint(test.invited, test.granted), func(t *testing.T) {
			admin := newKey(t)
			invitee := newKey(t)
			east := newKey(t)
			g := aGrant(east)
			g.ExportNamespaces = test.granted
			invitation, err := admin.SignInvitation(Invitation{
				Key:              invitee.Public(),
				Cluster:          "east",
				Gateways:         2,
				Sets:             []string{"default"},
				Serial:           500,
				Expires:          2000,
				ExportNamespaces: test.invited,
			})
			require.NoError(t, err)
			token, err := invitee.SignInvitedGrant(g, invitation)
			require.NoError(t, err)
			got, err := admin.Public().Grant(token)
			if len(test.refused) == 0 {
				require.NoError(t, err)
				require.Equal(t, test.granted, got.ExportNamespaces)
			}
			for _, text := range test.refused {
				require.ErrorContains(t, err, text)
			}
		})
	}
}

// A grant that says nothing of exports is the same text as before there were any.
func TestGrantWithoutExportsIsTheSameText(t *testing.T) {
	admin := newKey(t)
	east := newKey(t)
	token, err := admin.SignGrant(aGrant(east))
	require.NoError(t, err)
	payload := payloadOf(t, token)
	require.NotContains(t, payload, "export")
	with := aGrant(east)
	with.ExportNamespaces = []string{"shop"}
	token, err = admin.SignGrant(with)
	require.NoError(t, err)
	require.Contains(t, payloadOf(t, token), `"exportNamespaces":["shop"]`)
}

// payloadOf returns what a token states, as JSON.
func payloadOf(t *testing.T, token string) string {
	t.Helper()
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(Bare(token), ".")[1])
	require.NoError(t, err)
	return string(payload)
}
