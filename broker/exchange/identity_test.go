package exchange

import (
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker/trust"
)

// keyOf returns the signing key of a cluster, always the same.
func keyOf(id string) trust.Key {
	seed := make([]byte, 32)
	copy(seed, id)
	k, _ := trust.ParseKey(seed)
	return k
}

// grantOf returns a grant for a cluster, signed by "admin".
func grantOf(t testing.TB, id string) string {
	t.Helper()
	if token, ok := grants.Load(id); ok {
		return token.(string)
	}
	token, err := keyOf("admin").SignGrant(trust.Grant{
		Cluster:  id,
		Key:      keyOf(id).Public(),
		Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
		Gateways: 16,
		Sets:     []string{"default"},
		Serial:   1000,
	})
	require.NoError(t, err)
	first, _ := grants.LoadOrStore(id, token)
	return first.(string)
}

var grants sync.Map // by cluster ID: each signature is another one

// member returns the Cluster of a member on the broker.
func memberCluster(t testing.TB, id string) *submarinerv1.Cluster {
	t.Helper()
	c := &submarinerv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{
			Name:      id,
			Namespace: "hub",
			Labels:    map[string]string{submarinerv1.ClusterIDLabel: id},
		},
		Spec: submarinerv1.ClusterSpec{ClusterID: id},
	}
	signAs(t, id, c)
	c.Annotations[submarinerv1.GrantAnnotation] = grantOf(t, id)
	return c
}

// signAs signs an object as a cluster does.
func signAs(t testing.TB, id string, o client.Object) {
	t.Helper()
	require.NoError(t, Kinds().Sign(o, keyOf(id), "", 1000))
}

// planned returns the plan of a cluster with a valid identity.
func planned(t testing.TB, s Snapshot) ([]Write, []Refusal) {
	t.Helper()
	s.Identity = Identity{
		Key:           keyOf(s.ClusterID),
		Grant:         grantOf(t, s.ClusterID),
		Administrator: keyOf("admin").Public(),
	}
	s.Now = time.UnixMilli(2000)
	writes, refused, _ := Plan(Kinds(), s)
	return writes, refused
}

// A broker that hides clustersets in the renewed grant of a cluster does not keep the cluster from
// following the whole one: a part of it is not taken over.
func TestHostileRenewal(t *testing.T) {
	sign := func(serial int64, sets ...string) string {
		token, err := keyOf(
			"admin").SignGrant(trust.Grant{
			Cluster:  "east",
			Key:      keyOf("east").Public(),
			Gateways: 16,
			Sets:     sets,
			Serial:   serial,
		})
		require.NoError(t, err)
		return token
	}
	id := Identity{Key: keyOf("east"), Grant: sign(1000, "default"), Administrator: keyOf("admin").Public()}
	renewed := sign(2000, "default", "lab")
	published, err := trust.Published(renewed)
	require.NoError(t, err)
	m := Memory{Administrator: id.Administrator}
	for _, part := range []string{
		"",
		trust.Bare(renewed),
		published["default"],
		published["lab"],
		renewed + ",prod",
		strings.TrimSuffix(renewed, ",lab"),
	} {
		require.False(t, m.renew(id, "east", part), part)
		require.Equal(t, id, m.newest(id, "east"))
	}
	require.True(t, m.renew(id, "east", renewed))
	g, err := m.newest(id, "east").check("east")
	require.NoError(t, err)
	require.Equal(t, []string{"default", "lab"}, g.Sets)
	require.False(t, m.renew(id, "east", id.Grant), "an older one")
}
