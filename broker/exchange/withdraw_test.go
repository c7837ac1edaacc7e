package exchange_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker/brokertest"
	"subctl/broker/exchange"
	"subctl/broker/trust"
	"subctl/internal/kube"
)

// Of a cluster that is removed, only a proof remains that it has left, or that the administrator
// has removed it: not what looks like one, which would keep its Cluster on the broker for good.
func TestHostileProofOfRemoval(t *testing.T) {
	leaves := func(id, signer string) string {
		token, err := brokertest.Key(signer).SignLeaving(brokertest.Granted(brokertest.Grant(id)), 1)
		require.NoError(t, err)
		return token
	}
	revokes := func(key trust.Key, id, set string) string {
		token, err := key.SignRevocation(trust.Revocation{Cluster: id, Set: set, Serial: 2000})
		require.NoError(t, err)
		return token
	}
	administrator := brokertest.Administrator()
	for name, test := range map[string]struct {
		object *submarinerv1.Cluster
		stays  bool
	}{
		"it has left":                      {exchange.Left("hub", "east", leaves("east", "east")), true},
		"nothing valid":                    {exchange.Left("hub", "east", "a.b.c"), false},
		"another cluster has left":         {exchange.Left("hub", "east", leaves("west", "west")), false},
		"another cluster says that it has": {exchange.Left("hub", "east", leaves("east", "west")), false},
		"it is revoked": {
			exchange.Revoked("hub", "east", revokes(administrator, "east", "")),
			true,
		},
		"it is removed from the clusterset": {
			exchange.Revoked("hub", "east", revokes(administrator, "east", "default")),
			true,
		},
		"it is removed from another one": {
			exchange.Revoked("hub", "east", revokes(administrator, "east", "prod")),
			false,
		},
		"another cluster is revoked": {
			exchange.Revoked("hub", "east", revokes(administrator, "west", "")),
			false,
		},
		"it revokes itself": {
			exchange.Revoked("hub", "east", revokes(brokertest.Key("east"), "east", "")),
			false,
		},
		"it is a member": {brokertest.Cluster("hub", "east"), false},
	} {
		t.Run(name, func(t *testing.T) {
			scheme, err := kube.NewScheme()
			require.NoError(t, err)
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(test.object).Build()
			require.NoError(
				t,
				exchange.Kinds().Withdraw(t.Context(), c, exchange.Set{Name: "default", Namespace: "hub"}, "east",
					administrator.Public()),
			)
			err = c.Get(t.Context(), client.ObjectKeyFromObject(test.object), test.object)
			require.NoError(t, client.IgnoreNotFound(err))
			require.Equal(t, test.stays, err == nil)
		})
	}
}
