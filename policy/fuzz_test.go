package policy

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
)

// FuzzPolicy: whatever a member writes into a policy, or a person into a file, nothing panics; a
// policy that Check accepts decides every pair, alike at both ends.
func FuzzPolicy(f *testing.F) {
	for _, seed := range []string{
		`{"spec":[{"name":"wireguard"}]}`,
		`{"spec":[{"name":"vxlan","leftClusterSelector":{"matchLabels":{"a":"b"}},"rightClusterSelector":{"matchExpressions":[{"key":"a","operator":"NotIn","values":["c","d"]}]}}]}`,
		`{"spec":[{"name":"ipsec","options":{"data":{"CableCustomConfig":"ipsec: {ikeLifetime: 1h}"}}},{"name":"none"}]}`,
		`{"spec":[{"name":"vxlan+ipsec","leftClusterSelector":{"matchExpressions":[{"key":"a","operator":"Exists"}]}}]}`,
		`{"spec":[{"name":"","leftClusterSelector":{"matchExpressions":[{"key":"","operator":"x"}]}}]}`,
		`{"spec":null}`,
		`[]`,
		"apiVersion: submariner.io/v1alpha1\nkind: CablePolicies\nmetadata: {name: a}\nspec:\n- name: wireguard\n",
	} {
		f.Add([]byte(seed))
	}
	clusters := []Cluster{
		{
			ID:     "east",
			Driver: "vxlan",
			Sets:   []string{submarinerv1.DefaultClusterSet},
			Labels: map[string]string{"a": "b"},
		},
		{
			ID:     "west",
			Driver: "ipsec",
			Sets:   []string{submarinerv1.DefaultClusterSet},
			Labels: map[string]string{"a": "c"},
		},
		{ID: "north", Sets: []string{submarinerv1.DefaultClusterSet, "blue"}, MustEncrypt: true},
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		_, _ = readFile(text)
		p := &v1alpha1.CablePolicies{}
		if json.Unmarshal(text, p) != nil {
			return
		}
		p.Name = "fuzz"
		p.Labels = map[string]string{
			submarinerv1.ClusterIDLabel:  "thief",
			submarinerv1.ClusterSetLabel: submarinerv1.DefaultClusterSet,
		}
		wrong := Check(p)
		other := &v1alpha1.CablePolicies{ConnectionPolicies: []v1alpha1.CablePolicySpec{{CableDriver: "wireguard"}}}
		other.Name = submarinerv1.DefaultClusterSet
		book := Compile([]*v1alpha1.CablePolicies{p, other}, brokers)
		require.Equal(t, book.Digest(), Compile([]*v1alpha1.CablePolicies{other, p}, brokers).Digest())
		for i, x := range clusters {
			for _, y := range clusters[i+1:] {
				d := book.Decide(x, y)
				require.Equal(t, d, book.Decide(y, x), "the two ends differ")
				book.Explain(x, y)
				if wrong == nil {
					require.NoError(t, d.ConfigErr)
				}
			}
		}
	})
}
