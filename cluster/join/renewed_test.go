package join

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cluster"
	"subctl/cluster/clustertest"
)

// Connections that were made with the key that the cluster had before do not end the wait.
func TestWaitForTheNewKey(t *testing.T) {
	published := &submarinerv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "submariner-k8s-broker",
			Name:      "west",
		}, Spec: submarinerv1.ClusterSpec{ClusterID: "west", PublicKey: "old"},
	}
	j := &Operation{
		Broker: cluster.Side{Client: clustertest.Client(t, published)},
		Plan:   &Plan{Submariner: clustertest.Submariner()},
	}
	inSet := published.DeepCopy()
	inSet.Namespace = "submariner-k8s-broker-hub-a"
	inSet.Spec.PublicKey = "new"
	for _, test := range []struct {
		renewed string
		want    []string
	}{
		{"", nil},
		{"old", nil},
		{
			"new",
			[]string{
				"the gateway has not published the new key of this cluster on the broker yet: see kubectl logs -n submariner-operator -l app=submariner-gateway",
			},
		},
	} {
		j.renewed = test.renewed
		got, err := j.unpublished(t.Context())
		require.NoError(t, err)
		require.Equal(t, test.want, got)
	}

	j.Broker.Client = clustertest.Client(t, published, inSet)
	got, err := j.unpublished(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, got)
	j.Plan.Grant.Sets = []string{"hub-a", "hub-b"}
	got, err = j.unpublished(t.Context())
	require.NoError(t, err)
	require.Empty(t, got, "a cluster that is not in the clusterset default publishes nothing there")
}
