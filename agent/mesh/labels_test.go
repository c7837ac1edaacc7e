package mesh_test

import (
	"fmt"
	"maps"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/agent/mesh/members"
	"subctl/agent/mesh/report"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/internal/kube"
	"subctl/internal/kubetest"
	"subctl/policy"
)

// A cluster's labels come from join and from people with kubectl; the gateway's own
// writes leave what people did, and take away what join does not say any more. Who
// owns which label is the API server's to say, so this takes a real one.
func TestClusterLabels(t *testing.T) {
	server := kubetest.Start(t)
	server.InstallCRDs(t)
	c := server.Client(t)
	require.NoError(t,
		c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: submarinerv1.OperatorNamespace}}))
	sub := &v1alpha1.Submariner{}
	sub.Spec.ClusterID = "east"
	is := &submarinerv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "east", Namespace: submarinerv1.OperatorNamespace}}

	// gateway does what the gateway does with the Cluster, until there is nothing to do.
	gateway := func(said string) {
		t.Helper()
		sub.Annotations = map[string]string{v1alpha1.ClusterLabelsAnnotation: said}
		for range 3 {
			var objs []client.Object
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(is), is); err == nil {
				objs = append(objs, is)
			}
			m := members.Membership{Submariner: sub}
			m.ReadClusters(role.NewSnapshot("n1", objs...))
			want := report.Cluster(m, role.Snapshot{}, nil)
			if len(objs) == 1 && members.Labelled(is, want) && reflect.DeepEqual(is.Spec, want.Spec) {
				return
			}
			require.NoError(t, kube.Apply(t.Context(), c, kube.FieldOwner+"-gateway", want))
		}
		require.Fail(t, "the gateway does not come to rest")
	}
	kubectl := func(labels string) { // kubectl label
		t.Helper()
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":`+labels+`}}`))
		require.NoError(t, c.Patch(t.Context(), is, patch, client.FieldOwner("kubectl-label")))
	}
	has := func(want map[string]string) {
		t.Helper()
		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(is), is))
		require.True(t, maps.Equal(want, is.Labels), "want %v, has %v", want, is.Labels)
	}

	gateway("env=production,tier=gold")
	has(map[string]string{"env": "production", "tier": "gold"})

	kubectl(`{"zone":"eu","tier":"silver"}`)
	gateway("env=production,tier=gold")
	has(map[string]string{"env": "production", "tier": "silver", "zone": "eu"})

	kubectl(`{"env":null}`)
	sub.Spec.ClusterSets = []string{"default"} // something else changes
	gateway("env=production,tier=gold")
	has(map[string]string{"tier": "silver", "zone": "eu"})

	gateway("env=staging,rack=r1") // joined again; tier was changed by a person, and stays
	has(map[string]string{"env": "staging", "rack": "r1", "tier": "silver", "zone": "eu"})

	gateway("env=staging")
	has(map[string]string{"env": "staging", "tier": "silver", "zone": "eu"})

	kubectl(`{"tier":null}`)
	gateway("")
	has(map[string]string{"zone": "eu"})
}

// A cluster goes by the labels that other clusters have of it, so that both ends of a pair match
// the same policies, whatever somebody has put on its Cluster object.
func TestBothEndsHaveTheSameLabels(t *testing.T) {
	sub := &v1alpha1.Submariner{
		Spec: v1alpha1.SubmarinerSpec{ClusterID: "east", ClusterLabels: map[string]string{"site": "one"}},
	}
	is := &submarinerv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "east", Labels: map[string]string{
		"site": "one", "submariner.io/clusterset": "blue", submarinerv1.ClusterIDLabel: "west",
	}}}
	for i := range 100 {
		is.Labels[fmt.Sprintf("a%03d", i)] = "x"
	}
	m := members.Membership{Submariner: sub, Cluster: is}
	copied := is.DeepCopy()
	copied.Labels = submarinerv1.SharedLabels(is.Labels)
	require.Len(t, copied.Labels, submarinerv1.MaxLabels)
	copied.Labels[submarinerv1.ClusterIDLabel] = "east"
	require.Equal(t, policy.ClusterOf(copied).Labels, m.Labels())
}
