package broker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker"
	"subctl/broker/brokertest"
	"subctl/broker/exchange"
	"subctl/internal/kubetest"
)

// A change of a clusterset is announced only to members that are in more clustersets than they
// watch.
func TestAnnounceChange(t *testing.T) {
	d := brokertest.Deploy(t, kubetest.Shared(t), "a", "b")
	grantOf := map[string]string{"few": brokertest.IdentityIn("few", "a", "b").Grant}
	many := []string{"a", "b"}
	for i := range exchange.MostWatched() - 1 {
		many = append(many, fmt.Sprintf("more-%d", i))
	}
	grantOf["many"] = brokertest.IdentityIn(
		"many",
		many...).Grant
	grantOf["elsewhere"] = brokertest.IdentityIn(
		"elsewhere",
		many...).Grant
	grantOf["joining"] = brokertest.IdentityIn("joining", "b").Grant
	account := func(id string) *corev1.ServiceAccount {
		sa := &corev1.ServiceAccount{}
		require.NoError(t, d.Admin.Get(t.Context(), client.ObjectKey{Namespace: d.NS, Name: broker.MemberName(id)}, sa))
		return sa
	}
	for id, sets := range map[string][]string{
		"few":       {"a", "b"},
		"many":      {"a", "b"},
		"elsewhere": {"b"},
		"joining":   {"b"},
		"silent":    {"a"},
	} {
		_, err := broker.AddMember(t.Context(), d.Admin, d.NS, id, "uid-"+id, broker.Reservation{Sets: sets})
		require.NoError(t, err)
		sa := account(id)
		if token := grantOf[id]; token != "" {
			brokertest.Annotate(sa, submarinerv1.GrantAnnotation, token)
			require.NoError(t, d.Admin.Update(t.Context(), sa))
		}
	}
	now := time.UnixMilli(time.Now().UnixMilli())
	for _, c := range []broker.SetChange{
		{Cluster: "joining", Add: []string{"a"}},
		{Cluster: "joining", Remove: []string{"a"}},
	} {
		now = now.Add(time.Second)
		_, err := broker.ChangeSets(t.Context(), d.Admin, d.NS, []string{"default", "a", "b"}, c, broker.Reservation{},
			brokertest.Administrator(), now)
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("a %d", now.UnixMilli()),
			account("many").Annotations[submarinerv1.ChangedAnnotation])
		for _, id := range []string{"few", "elsewhere", "joining"} {
			require.NotContains(t, account(id).Annotations, submarinerv1.ChangedAnnotation, id)
		}
	}
	now = now.Add(time.Second)
	require.NoError(
		t,
		broker.Revoke(t.Context(), d.Admin, d.NS, []string{"default", "a", "b"}, "joining", brokertest.Administrator(),
			now),
	)
	for _, id := range []string{"many", "elsewhere"} {
		require.Equal(t, fmt.Sprintf("b %d", now.UnixMilli()), account(id).Annotations[submarinerv1.ChangedAnnotation],
			"the clusterset of the revoked cluster")
	}
	require.NotContains(t, account("few").Annotations, submarinerv1.ChangedAnnotation)

	t.Log("a cluster that publishes no grant is removed")
	now = now.Add(time.Second)
	_, err := broker.ChangeSets(t.Context(), d.Admin, d.NS, []string{"default", "a", "b"},
		broker.SetChange{Cluster: "silent", Remove: []string{"a"}}, broker.Reservation{}, brokertest.Administrator(),
		now)
	require.ErrorContains(t, err, "cluster silent has no rights and no objects in clusterset a any more")
	require.Equal(t, fmt.Sprintf("a %d", now.UnixMilli()), account("many").Annotations[submarinerv1.ChangedAnnotation])
}
