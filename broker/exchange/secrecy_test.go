package exchange_test

import (
	"encoding/base64"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/broker"
	"subctl/broker/brokertest"
	"subctl/broker/exchange"
	"subctl/broker/trust"
	"subctl/internal/kubetest"
)

var base64Text = regexp.MustCompile(`[A-Za-z0-9_+/-]{16,}`)

// mentions reports whether a text contains a name, also in base64, and in base64 of base64.
func mentions(text, name string) bool {
	if strings.Contains(text, name) {
		return true
	}
	for _, part := range base64Text.FindAllString(text, -1) {
		for _, encoding := range []*base64.Encoding{base64.RawURLEncoding, base64.RawStdEncoding} {
			if b, err := encoding.DecodeString(part); err == nil && mentions(string(b), name) {
				return true
			}
		}
	}
	return false
}

// reads returns everything that a client can read of the exchanged kinds, service accounts, Roles
// and Secrets in some namespaces, as JSON.
func reads(t *testing.T, c client.Client, namespaces ...string) string {
	t.Helper()
	var out strings.Builder
	lists := []client.ObjectList{
		&corev1.ServiceAccountList{},
		&corev1.SecretList{},
		&corev1.ConfigMapList{},
		&rbacv1.RoleList{},
		&rbacv1.RoleBindingList{},
	}
	for _, k := range exchange.Kinds() {
		lists = append(lists, k.List.DeepCopyObject().(client.ObjectList))
	}
	for _, ns := range namespaces {
		for _, list := range lists {
			if c.List(t.Context(), list, client.InNamespace(ns)) != nil {
				continue
			}
			require.NoError(t, meta.EachListItem(list, func(o runtime.Object) error {
				text, err := json.Marshal(o)
				out.Write(text)
				return err
			}))
		}
	}
	return out.String()
}

// Clusters that share a clusterset learn of no other clusterset of each other: neither from what
// they can read on the broker, nor from their copies, whether the administrator or the holder of a
// join file has signed the grant, and before and after changes.
func TestHostileReaderOfGrants(t *testing.T) {
	server := kubetest.Shared(t)
	d := brokertest.Deploy(t, server, "alpha", "bravo", "charlie")
	gate := kubetest.NewGate(t, server)
	hub := newSite(t, d, gate, "hub", "alpha", "bravo")
	guest := newSite(t, d, gate, "guest", "alpha", "bravo")
	spoke := newSite(t, d, gate, "spoke", "alpha")
	identity := invitedTo(t, "guest", []string{"alpha", "bravo", "charlie"}, "alpha", "bravo")
	guest.config.Identity = func() (exchange.Identity, error) { return identity, nil }
	for _, s := range []*site{hub, guest, spoke} {
		s.create(brokertest.Cluster("", s.id))
		s.start()
		t.Cleanup(func() { s.stop() })
	}
	member, err := client.New(spoke.config.Broker, client.Options{Scheme: d.Admin.Scheme()})
	require.NoError(t, err)
	secret := func() {
		t.Helper()
		seen := reads(t, member, d.NS, broker.NamespaceIn(d.NS, "alpha"), broker.NamespaceIn(d.NS, "bravo"),
			broker.NamespaceIn(d.NS, "charlie")) +
			reads(t, spoke.client, spoke.ns)
		for _, name := range []string{"bravo", "charlie"} {
			require.False(t, mentions(seen, name), "a member of alpha learns of %s", name)
		}
		require.True(t, mentions(seen, "alpha") && mentions(seen, "hub"), "it reads something")
	}
	change := func(c broker.SetChange) {
		t.Helper()
		_, err := broker.ChangeSets(t.Context(), d.Admin, d.NS, []string{"default", "alpha", "bravo", "charlie"}, c,
			broker.Reservation{}, brokertest.Administrator(), time.Now())
		require.NoError(t, err)
	}
	spoke.eventuallyKnows(map[string][]string{"hub": {"alpha"}, "guest": {"alpha"}})
	hub.eventuallyKnows(map[string][]string{"spoke": {"alpha"}, "guest": {"alpha", "bravo"}})
	secret()
	change(broker.SetChange{Cluster: "hub", Add: []string{"charlie"}})
	change(broker.SetChange{Cluster: "guest", Add: []string{"charlie"}})
	hub.eventuallyKnows(map[string][]string{"spoke": {"alpha"}, "guest": {"alpha", "bravo", "charlie"}})
	guest.eventuallyKnows(map[string][]string{"spoke": {"alpha"}, "hub": {"alpha", "bravo", "charlie"}})
	secret()
	change(broker.SetChange{Cluster: "hub", Remove: []string{"bravo"}})
	guest.eventuallyKnows(map[string][]string{"spoke": {"alpha"}, "hub": {"alpha", "charlie"}})
	secret()
	change(broker.SetChange{Cluster: "hub", Remove: []string{"alpha"}})
	spoke.eventuallyKnows(map[string][]string{"guest": {"alpha"}})
	leaving, err := identity.Key.SignLeaving(identity.Grant, time.Now().UnixMilli())
	require.NoError(t, err)
	_, _, err = broker.Leave(t.Context(), d.Admin, d.NS, []string{"alpha"}, "guest", leaving)
	require.NoError(t, err)
	secret()

	all := reads(t, d.Admin, d.NS)
	require.True(t, mentions(all, "bravo"), "its service account has the whole grant of hub")
	require.True(t, mentions(base64.RawURLEncoding.EncodeToString([]byte(identity.Grant)), "charlie"))
}

// invitedTo returns the identity of a cluster that has signed its grant for some clustersets with
// an invitation.
func invitedTo(t *testing.T, id string, bounds []string, sets ...string) exchange.Identity {
	t.Helper()
	g := brokertest.Grant(id)
	invitation, err := brokertest.Administrator().SignInvitation(trust.Invitation{
		Key: brokertest.Key(
			"invitee").Public(),
		Cluster:  id,
		Gateways: g.Gateways,
		Sets:     bounds,
		Serial:   g.Serial,
		Expires:  g.Serial,
	})
	require.NoError(t, err)
	i := brokertest.Identity(id)
	g.Sets = sets
	i.Grant, err = brokertest.Key("invitee").SignInvitedGrant(g, invitation)
	require.NoError(t, err)
	return i
}
