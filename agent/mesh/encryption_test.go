package mesh_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	. "subctl/agent/mesh"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
	"subctl/cable/drivers"
	"subctl/internal/kubetest"
	"subctl/policy"
)

// Whatever the policies, the drivers that the ends offer, the cables in use and the results of
// probes are: a pair that must be encrypted has no cable without encryption, not even for
// a moment beside another one, and its packets are dropped if it has none.
func TestRequiredPairsHaveNoPlainCable(t *testing.T) {
	file, err := txtar.ParseFile("../../testdata/scenarios/encryption-required.txtar")
	require.NoError(t, err)
	decoded := kubetest.Decode(t, file)
	seen := map[string]int{}
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 1))
		var objs []client.Object
		for _, o := range decoded {
			if o.GetName() != "west" { // westCluster makes its Cluster
				objs = append(objs, o.DeepCopyObject().(client.Object))
			}
		}
		required := randomize(r, objs)
		policies, byPolicy := randomEncryption(r)
		objs = append(objs, policies)
		s, err := FromReports("gw", append(objs, westCluster(r, &required))...)
		require.NoError(t, err)
		required = required || byPolicy
		s.PoliciesDigest = policy.Digest([]*v1alpha1.CablePolicies{policies})
		s.Now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		const west = "submariner-cable-west-10-89-2-11"
		s.Memory.Using = map[string]role.Using{west: randomUsing(r)}
		if r.IntN(2) == 0 {
			before := randomUsing(r)
			u := randomUsing(r)
			u.Since = s.Now
			u.Before = &before
			s.Memory.Using[west] = u
		}
		if r.IntN(2) == 0 {
			s.Health = map[string]role.Health{}
			for _, d := range drivers.All() {
				s.Health[role.ProbeName(west, d.Device(nil))] = role.Health{Status: submarinerv1.Connected}
			}
		}
		p, err := PlanGateway(s)
		require.NoError(t, err)
		plain := false
		for _, c := range p.Installed {
			plain = plain || !c.Driver.Properties().Encrypts
		}
		switch {
		case required && len(p.Installed) == 0:
			require.NotEmpty(t, p.Mesh.Cables.Blackholed, "seed %d", seed)
			seen["barred"]++
		case required:
			require.False(t, plain, "seed %d: %v", seed, p.Installed)
			seen["encrypted"]++
		default:
			require.Equal(t, len(p.Installed) == 0, len(p.Mesh.Cables.Blackholed) > 0, "seed %d", seed)
			seen["free"]++
			if plain {
				seen["plain"]++
			}
		}
	}
	for _, kind := range []string{"barred", "encrypted", "free", "plain"} {
		require.Greater(t, seen[kind], 20, "%v: the cases are too tame", seen)
	}
}

// randomize changes what the clusters offer, and whether this one requires encryption, which it
// reports.
func randomize(r *rand.Rand, objs []client.Object) (required bool) {
	for _, o := range objs {
		switch o := o.(type) {
		case *v1alpha1.Submariner:
			o.Spec.CableDriver = pickOne(r, "", "vxlan", "ipsec")
			if required = r.IntN(3) == 0; !required {
				o.Spec.Encryption = ""
			}
		case *submarinerv1.RouteAgent:
			if r.IntN(4) > 0 {
				o.Status.Node.IPsec = submarinerv1.EngineFact{Name: "kernel"}
			}
		case *submarinerv1.Endpoint:
			if o.Spec.ClusterID == "west" {
				o.Spec.BackendConfig = map[string]string{
					submarinerv1.BackendDrivers: pickOne(r, "vxlan", "vxlan,ipsec", "vxlan,ipsec,vxlan+ipsec", "ipsec"),
				}
			}
		}
	}
	return required
}

// westCluster returns the Cluster object of the other cluster. It sets required if that requires
// encryption.
func westCluster(r *rand.Rand, required *bool) *submarinerv1.Cluster {
	c := &submarinerv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "west",
			Namespace:   submarinerv1.OperatorNamespace,
			Labels:      map[string]string{submarinerv1.ClusterIDLabel: "west"},
			Annotations: map[string]string{submarinerv1.ClusterSetsAnnotation: submarinerv1.DefaultClusterSet},
		},
		Spec: submarinerv1.ClusterSpec{
			ClusterID: "west",
			PublicKey: "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=",
		},
	}
	if r.IntN(3) == 0 {
		c.Spec.Encryption = submarinerv1.EncryptionRequired
		*required = true
	}
	return c
}

// randomEncryption returns policies for all pairs, and reports whether one requires encryption.
func randomEncryption(r *rand.Rand) (p *v1alpha1.CablePolicies, required bool) {
	p = &v1alpha1.CablePolicies{ObjectMeta: metav1.ObjectMeta{
		Name: pickOne(r, "any", "default"), Namespace: submarinerv1.OperatorNamespace,
		Labels: map[string]string{submarinerv1.ClusterIDLabel: "west", submarinerv1.ClusterSetLabel: "default"},
	}}
	for range 1 + r.IntN(3) {
		rule := v1alpha1.CablePolicySpec{CableDriver: pickOne(r, "vxlan", "vxlan", "ipsec", "vxlan+ipsec", "gre")}
		if r.IntN(5) == 0 {
			rule.CableOptions = &v1alpha1.CableOptions{Encryption: submarinerv1.EncryptionRequired}
			required = true
		}
		p.ConnectionPolicies = append(p.ConnectionPolicies, rule)
	}
	return p, required
}

func randomUsing(r *rand.Rand) role.Using {
	d := drivers.Find(pickOne(r, "vxlan", "vxlan", "ipsec", "vxlan+ipsec"))
	return role.Using{Cluster: "west", Driver: d.Name(), Device: d.Device(cable.Config{}), Policy: "before"}
}

func pickOne(r *rand.Rand, from ...string) string { return from[r.IntN(len(from))] }
