package sdewan_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	ipsec "subctl/api/sdewan/ipsec/v1alpha1"
	batch "subctl/api/sdewan/v1alpha1"
	"subctl/sdewan"
	"subctl/sdewan/rest"
)

var update = flag.Bool("update", false, "rewrite the golden file")

// manifest reads the rules of a file that the tests of package api/sdewan/v1alpha1 apply to an API
// server.
func manifest(t testing.TB, file string) []sdewan.Rule {
	t.Helper()
	b, err := os.ReadFile("../api/sdewan/v1alpha1/testdata/" + file)
	require.NoError(t, err)
	var out []sdewan.Rule
	for doc := range strings.SplitSeq(string(b), "\n---\n") {
		u := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(doc), &u.Object))
		for _, k := range sdewan.Kinds() {
			if k.GVK == u.GroupVersionKind() {
				rule := k.New()
				require.NoError(t, yaml.UnmarshalStrict([]byte(doc), rule))
				out = append(out, rule)
			}
		}
	}
	return out
}

// render renders a rule; the Services of CNFServices have an address here.
func render(k sdewan.Kind, rule sdewan.Rule) (rest.Object, error) {
	if s, ok := rule.(*batch.CNFService); ok {
		return sdewan.RenderCNFService(s, netip.MustParseAddr("10.96.0.10"), "tcp"), nil
	}
	return k.Render(rule, networks)
}

var networks = sdewan.Networks{"ovn-net1": "net1", "ovn-net2": "net2", "pnetwork": "net3", "ovn/net_2": "net4"}

// What the manifests of the proposal and of upstream are on a CNF, and what they use.
func TestRender(t *testing.T) {
	const file = "testdata/render.txt"
	var got strings.Builder
	for _, rule := range append(manifest(t, "seed.yaml"), manifest(t, "upstream.yaml")...) {
		k, ok := sdewan.KindOf(rule)
		require.True(t, ok)
		o, err := render(k, rule)
		require.NoError(t, err)
		b, err := json.Marshal(o)
		require.NoError(t, err)
		fmt.Fprintf(&got, "%s %s: %s\n\t%s\n\tuses %v\n", k.GVK.Kind, rule.GetName(), k.Collection, b, k.Uses(rule))
		// upstream.yaml has no real certificates
		if _, bad := o.GetName(), k.Collection.Check(o); k.GVK.Kind != "IpsecSite" {
			require.NoError(t, bad, rule.GetName())
		}
	}
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(got.String()), 0o600))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), got.String())
}

// Both groups of IPsec kinds have the same results.
func TestGroupsAreTheSame(t *testing.T) {
	for _, rule := range append(manifest(t, "seed.yaml"), manifest(t, "upstream.yaml")...) {
		k, _ := sdewan.KindOf(rule)
		if !strings.HasPrefix(k.GVK.Kind, "Ipsec") {
			continue
		}
		group := ipsec.GroupVersion.Group
		if k.GVK.Group == group {
			group = batch.GroupVersion.Group
		}
		other, ok := sdewan.KindOfResource(group, k.Resource)
		require.True(t, ok)
		b, err := json.Marshal(rule)
		require.NoError(t, err)
		twin := other.New()
		require.NoError(t, json.Unmarshal(b, twin))
		want, err := k.Render(rule, nil)
		require.NoError(t, err)
		got, err := other.Render(twin, nil)
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.Equal(t, k.Uses(rule), other.Uses(twin))
		require.Same(t, k.Collection, other.Collection)

		_, err = k.Render(twin, nil)
		require.ErrorContains(t, err, "rendering")
		require.Nil(t, k.Uses(twin))
	}
}

func TestKindsAreInOrder(t *testing.T) {
	s := runtime.NewScheme()
	require.NoError(t, batch.AddToScheme(s))
	require.NoError(t, ipsec.AddToScheme(s))
	for i, k := range sdewan.Kinds() {
		require.Equal(t, i, k.Rank())
		kinds, _, err := s.ObjectKinds(k.New())
		require.NoError(t, err)
		require.Equal(t, k.GVK, kinds[0])
		lists, _, err := s.ObjectKinds(k.NewList())
		require.NoError(t, err)
		require.Equal(t, k.GVK.Kind+"List", lists[0].Kind)
	}
	for _, rule := range append(manifest(t, "seed.yaml"), manifest(t, "upstream.yaml")...) {
		k, _ := sdewan.KindOf(rule)
		for _, use := range k.Uses(rule) {
			for _, other := range sdewan.Kinds() {
				if other.GVK.Kind == use.Kind {
					require.Same(t, other.Collection, use.Collection)
					require.Less(t, other.Rank(), k.Rank())
					require.True(t, k.MayUse(other))
				}
			}
		}
	}
}

func TestOlder(t *testing.T) {
	at := func(seconds int64, uid types.UID, r sdewan.Rule) sdewan.Rule {
		r.SetUID(uid)
		r.SetCreationTimestamp(metav1.Time{Time: time.Unix(seconds, 0)})
		return r
	}
	for _, test := range []struct{ older, newer sdewan.Rule }{
		{at(1, "b", &ipsec.IpsecSite{}), at(2, "a", &batch.IpsecSite{})},
		{at(1, "b", &batch.IpsecSite{}), at(1, "a", &ipsec.IpsecSite{})},
		{at(1, "b", &batch.FirewallSNAT{}), at(1, "a", &batch.FirewallDNAT{})},
	} {
		require.True(t, sdewan.Older(test.older, test.newer))
		require.False(t, sdewan.Older(test.newer, test.older))
	}
}

// A network that a CNF does not have is named, with those that it has; all at once.
func TestUnknownNetworks(t *testing.T) {
	policy := &batch.Mwan3Policy{
		Spec: batch.Mwan3PolicySpec{
			Members: []batch.Mwan3PolicyMember{{Network: "a"}, {Network: "ovn-net1"}, {Network: "b"}},
		},
	}
	k, _ := sdewan.KindOf(policy)
	_, err := k.Render(policy, sdewan.Networks{"ovn-net1": "net1", "lan": "net0"})
	require.EqualError(
		t,
		err,
		`spec.members[0].network: the CNF is not attached to network "a": the annotation k8s.plugin.opnfv.org/nfn-network of its pods has lan, ovn-net1
spec.members[2].network: the CNF is not attached to network "b": the annotation k8s.plugin.opnfv.org/nfn-network of its pods has lan, ovn-net1`,
	)
	zone := &batch.FirewallZone{Spec: batch.FirewallZoneSpec{Network: []batch.NetworkName{"a"}}}
	k, _ = sdewan.KindOf(zone)
	_, err = k.Render(zone, nil)
	require.EqualError(t, err,
		`spec.network[0]: the CNF is not attached to network "a": its pods have no networks in the annotation k8s.plugin.opnfv.org/nfn-network`)
}
