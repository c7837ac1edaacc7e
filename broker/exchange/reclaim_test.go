package exchange

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
)

func TestReclaim(t *testing.T) {
	labelled := func(name, id string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Labels: map[string]string{submarinerv1.ClusterIDLabel: id, "site": "edge"}}
	}
	objects := func() []client.Object {
		return []client.Object{
			&submarinerv1.Endpoint{ObjectMeta: labelled("east-submariner-cable-east-10-0-0-1", "west")},
			&submarinerv1.Cluster{ObjectMeta: labelled("east", "nobody")},
			&v1alpha1.CablePolicies{
				ObjectMeta: labelled("made-here", "west"),
				Status:     v1alpha1.CablePoliciesStatus{ClusterSets: []string{"default"}},
			},
			// Copies, and an object of a kind that clusters do not exchange.
			&submarinerv1.Cluster{ObjectMeta: labelled("west", "west")},
			&submarinerv1.Cluster{ObjectMeta: labelled("east-b", "east-b")},
			&v1alpha1.CablePolicies{ObjectMeta: labelled("copied", "west")},
			&corev1.Node{ObjectMeta: labelled("east", "east")},
		}
	}
	objs := objects()
	require.Empty(t, Reclaim(Kinds(), objs))
	require.Equal(t, objects(), objs, "the cluster has not joined")

	given := append(objs, &v1alpha1.Submariner{Spec: v1alpha1.SubmarinerSpec{ClusterID: "east"}})
	objs = append([]client.Object(nil), given...)
	mislabelled := Reclaim(Kinds(), objs)
	require.Equal(t, []client.Object{objs[1], objs[0]}, mislabelled, "named after the cluster, sorted")
	for i, o := range objs {
		id, is := submarinerv1.OwnerID(o)
		require.Equal(t, i >= 3 && i < 7, is, "%T %s: %s", o, o.GetName(), id)
		if i < 3 {
			require.Equal(t, map[string]string{"site": "edge"}, o.GetLabels())
		}
	}
	require.Equal(t, objects(), given[:7], "objects of a cache are not changed")
}
