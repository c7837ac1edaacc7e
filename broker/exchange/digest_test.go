package exchange

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/policy"
)

// What an object may depend on is written before it, and deleted after it.
func TestPhases(t *testing.T) {
	kinds := Kinds()
	write := func(op Op, o client.Object) Write {
		k, err := kinds.Of(o)
		require.NoError(t, err)
		return Write{Op: op, Object: o, kind: k}
	}
	writes := []Write{
		write(Delete, &submarinerv1.Cluster{}),
		write(Create, &submarinerv1.Endpoint{}),
		write(Delete, &v1alpha1.CablePolicies{}),
		write(Update, &submarinerv1.Cluster{}),
		write(Report, &v1alpha1.CablePolicies{}),
		write(Delete, &submarinerv1.Endpoint{}),
		write(Create, &v1alpha1.CablePolicies{}),
		write(Update, &v1alpha1.ExportedServices{}),
		write(Delete, &v1alpha1.ExportedServices{}),
	}
	require.Equal(t, [][]int{{4, 6}, {3}, {1}, {7}, {8}, {5}, {0}, {2}}, kinds.phases(writes))
}

// There is a digest once this cluster holds all policies and Clusters. It is what the last writes
// lead to, so that a member which changes something all the time does not keep others waiting.
func TestDigest(t *testing.T) {
	kinds := Kinds()
	made := &v1alpha1.CablePolicies{
		ObjectMeta: metav1.ObjectMeta{
			Name:            "p",
			ResourceVersion: "1",
			Labels: map[string]string{
				submarinerv1.ClusterIDLabel:  "west",
				submarinerv1.ClusterSetLabel: "default",
			},
		},
		ConnectionPolicies: []v1alpha1.CablePolicySpec{{CableDriver: "ipsec"}},
	}
	local := []client.Object{made, &submarinerv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "east"}}}
	want := policy.Digest([]*v1alpha1.CablePolicies{made})
	more := made.DeepCopy()
	vxlan := made.DeepCopy()
	more.Name = "q"
	vxlan.ConnectionPolicies[0].CableDriver = "vxlan"
	own := &v1alpha1.CablePolicies{
		ObjectMeta:         metav1.ObjectMeta{Name: "own"},
		ConnectionPolicies: made.ConnectionPolicies,
	}
	reported := &v1alpha1.CablePolicies{
		ObjectMeta: own.ObjectMeta,
		Status:     v1alpha1.CablePoliciesStatus{ClusterSets: []string{"default"}, Rules: made.ConnectionPolicies},
	}
	inForce := own.DeepCopy()
	inForce.Status = reported.Status
	local = append(local, own)
	for _, test := range []struct {
		name  string
		write Write
		want  string
	}{
		{"a copy is missing", Write{Op: Create, Object: made, kind: &kinds[0]}, ""},
		{
			"a copy was made",
			Write{Op: Create, Object: more, kind: &kinds[0], done: true},
			policy.Digest([]*v1alpha1.CablePolicies{made, more}),
		},
		{
			"a copy was changed",
			Write{Op: Update, Object: vxlan, kind: &kinds[0], done: true},
			policy.Digest([]*v1alpha1.CablePolicies{vxlan}),
		},
		{"a copy was deleted", Write{Op: Delete, Object: made, kind: &kinds[0], done: true}, "none"},
		{
			"a policy of this cluster came into force",
			Write{Op: Report, Object: reported, kind: &kinds[0], done: true},
			policy.Digest([]*v1alpha1.CablePolicies{made, inForce}),
		},
		{"a copy is too many", Write{Op: Delete, Object: made, kind: &kinds[0]}, ""},
		{"what is in force was not reported", Write{Op: Report, Object: made, kind: &kinds[0]}, ""},
		{"the API server rejects the copy", Write{Op: Create, Object: made, kind: &kinds[0], rejected: true}, want},
		{
			"a policy of this cluster is not on the broker",
			Write{Op: Create, Set: "default", Object: made, kind: &kinds[0]},
			want,
		},
		{"a Cluster is missing", Write{Op: Create, Object: &submarinerv1.Cluster{}, kind: &kinds[1]}, ""},
		{
			"the API server rejects a Cluster",
			Write{Op: Create, Object: &submarinerv1.Cluster{}, kind: &kinds[1], rejected: true},
			want,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			var d digest
			require.Equal(t, test.want, d.of(kinds, local, []Write{test.write}))
			require.Equal(t, want, d.of(kinds, local, nil))
			changed := made.DeepCopy()
			changed.ConnectionPolicies[0].CableDriver = "vxlan"
			changed.ResourceVersion = "2"
			require.NotEqual(t, want, d.of(kinds, []client.Object{changed}, nil))
			require.Equal(t, "none", d.of(kinds, nil, nil))
		})
	}
}
