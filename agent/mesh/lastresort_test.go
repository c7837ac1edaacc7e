package mesh_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"
	"sigs.k8s.io/controller-runtime/pkg/client"

	. "subctl/agent/mesh"
	"subctl/agent/roles"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/dataplane"
	"subctl/internal/kubetest"
	"subctl/policy"
)

// fate returns what a node that holds a state does with a packet to dst that comes from iif:
// "drop", the ID of a next hop group, or "main" if none of our tables has a route for it.
func fate(state dataplane.State, iif string, dst netip.Addr) string {
	var rules []dataplane.Rule
	for _, o := range state {
		switch o := o.(type) {
		case dataplane.Rule:
			rules = append(rules, o)
		case dataplane.Arrival:
			if o.Dev == iif {
				rules = append(rules, dataplane.Rule{Priority: o.Priority, Table: o.Table, Specific: o.Specific})
			}
		}
	}
	slices.SortFunc(rules, func(a, b dataplane.Rule) int { return a.Priority - b.Priority })
	for _, rule := range rules {
		best := -1
		to := ""
		for _, o := range state {
			switch r := o.(type) {
			case dataplane.Route:
				if r.Table == rule.Table && r.Dst.Contains(dst) && r.Dst.Bits() >= best {
					best = r.Dst.Bits()
					to = fmt.Sprintf("group %d", r.Group)
				}
			case dataplane.Blackhole:
				if r.Table == rule.Table && r.Dst.Contains(dst) && r.Dst.Bits() > best {
					best = r.Dst.Bits()
					to = "drop"
				}
			}
		}
		if best >= 0 {
			return to
		}
	}
	return "main"
}

// Once a node knows the networks of another cluster, no packet to them takes the default route, in
// clear text: a cable carries it, or it is dropped. That holds whatever the reason is for which
// there is no cable, on gateways and on workers, for packets of their own pods and for packets that
// other nodes still send to a gateway that has lost its role.
func TestNoPacketTakesTheDefaultRoute(t *testing.T) {
	file, err := txtar.ParseFile("../../testdata/scenarios/two-clusters.txtar")
	require.NoError(t, err)
	dst := netip.MustParseAddr("10.112.7.7")
	pod := netip.MustParseAddr("10.111.2.7")
	seen := map[string]int{}
	for seed := range uint64(600) {
		r := rand.New(rand.NewPCG(seed, 7))
		objs := []client.Object(nil)
		known := false
		trouble := ""
		note := func(text string) { trouble += " " + text }
		for _, o := range kubetest.Decode(t, file) {
			switch o := o.(type) {
			case *submarinerv1.Cluster:
				if submarinerv1.IsCopy(o) {
					o.Spec.ServiceCIDR = []string{"10.102.0.0/16"}
					o.Spec.ClusterCIDR = []string{"10.112.0.0/16"}
					if r.IntN(5) == 0 {
						note("no Cluster")
						continue
					}
					known = true
				}
			case *submarinerv1.Endpoint:
				if !submarinerv1.IsCopy(o) {
					if r.IntN(4) == 0 {
						note("no gateway here")
						continue
					}
					break
				}
				accepted := true
				switch r.IntN(8) {
				case 0:
					note("no Endpoint")
					continue
				case 1:
					note("invalid Endpoint")
					o.Spec.HealthCheckIP = "192.0.2.1"
					accepted = false
				case 2:
					note("other driver")
					o.Spec.BackendConfig = map[string]string{submarinerv1.BackendDrivers: "wireguard"}
				case 3:
					note("other default")
					o.Spec.Backend = "wireguard"
				}
				known = known || accepted
			}
			objs = append(objs, o)
		}
		p := &v1alpha1.CablePolicies{}
		p.Name = "any"
		p.Namespace = submarinerv1.OperatorNamespace
		p.Labels = map[string]string{submarinerv1.ClusterIDLabel: "west", submarinerv1.ClusterSetLabel: "default"}
		p.ConnectionPolicies = []v1alpha1.CablePolicySpec{{CableDriver: pickOne(r, "vxlan", "ipsec", "gre")}}
		policies := []*v1alpha1.CablePolicies{}
		if r.IntN(2) == 0 {
			note(p.ConnectionPolicies[0].CableDriver)
			policies = append(policies, p)
			objs = append(objs, p)
		}
		node := pickOne(r, "gw", "worker")
		s, err := FromReports(node, objs...)
		require.NoError(t, err)
		s.Now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		if r.IntN(4) > 0 {
			s.PoliciesDigest = policy.Digest(policies)
		} else {
			note("policies unknown")
		}
		if r.IntN(2) == 0 {
			s.Health = answering(s)
		}
		if s.Standing.Active && r.IntN(3) == 0 {
			note("lost its role")
			s.Standing.Active = false
		}
		state, err := roles.PlanNode(s)
		require.NoError(t, err)
		if !known {
			continue
		}
		for _, iif := range []string{"cali123", "vx-submariner"} {
			got := fate(state, iif, dst)
			require.NotEqual(t, "main", got, "seed %d, node %s, from %s:%s", seed, node, iif, trouble)
			if got != "drop" {
				got = "carried"
			}
			seen[node+" "+got]++
			require.Equal(t, "main", fate(state, iif, pod), "seed %d: packets for our own pods are the CNI's", seed)
		}
	}
	for _, kind := range []string{"gw drop", "gw carried", "worker drop", "worker carried"} {
		require.Greater(t, seen[kind], 20, "%v: the cases are too tame", seen)
	}
}

// A cluster that only lists networks, and has no gateway, can neither drop our packets
// or the packets of a third cluster, nor keep a network from a cluster that announces it later.
func TestListedNetworksClaimNothing(t *testing.T) {
	file, err := txtar.ParseFile("../../testdata/scenarios/two-clusters.txtar")
	require.NoError(t, err)
	objs := kubetest.Decode(t, file)
	evil := &submarinerv1.Cluster{}
	evil.Name = "evil"
	evil.Namespace = submarinerv1.OperatorNamespace
	evil.Labels = map[string]string{submarinerv1.ClusterIDLabel: "evil"}
	evil.Spec = submarinerv1.ClusterSpec{
		ClusterID: "evil",
		ServiceCIDR: []string{
			"10.101.0.0/16", "10.89.1.0/24", "0.0.0.0/0", "0.0.0.0/1", "127.0.0.0/8", "10.99.1.1/32", "nonsense",
			"10.0.0.0/7", "fd00::/64",
		},
		ClusterCIDR: []string{
			"10.111.2.0/24", "10.112.7.0/24", "10.112.0.0/15", "10.89.2.0/24", "10.89.2.11/32", "240.0.0.0/8",
			"172.31.0.0/16", "10.89.0.0/16",
		},
	}
	t.Run("its own networks", func(t *testing.T) { claimNothing(t, objs, evil) })
	evil.Spec.GlobalCIDR = evil.Spec.Announced()
	evil.Spec.ServiceCIDR = nil
	evil.Spec.ClusterCIDR = nil
	t.Run("global networks", func(t *testing.T) { claimNothing(t, objs, evil) })
}

func claimNothing(t *testing.T, objs []client.Object, evil *submarinerv1.Cluster) {
	for _, node := range []string{"gw", "worker"} {
		s, err := FromReports(node, append(slices.Clone(objs), evil)...)
		require.NoError(t, err)
		s.Health = answering(s)
		state, err := roles.PlanNode(s)
		require.NoError(t, err)
		for _, ip := range []string{"10.101.0.1", "10.89.1.12", "10.111.2.7", "10.99.1.1", "10.89.2.11", "8.8.8.8"} {
			require.Equal(t, "main", fate(state, "cali123", netip.MustParseAddr(ip)), "node %s, %s", node, ip)
		}
		require.Contains(t, fate(state, "cali123", netip.MustParseAddr("10.112.7.7")), "group", node)
		require.Equal(t, "drop", fate(state, "cali123", netip.MustParseAddr("172.31.0.1")), node)
		for _, o := range objs { // a third cluster announces it
			if e, ok := o.(*submarinerv1.Endpoint); ok && submarinerv1.IsCopy(e) {
				e = e.DeepCopy()
				e.Spec.Subnets = []string{"172.31.0.0/16"}
				e.Spec.HealthCheckIP = ""
				s, err := FromReports(
					node,
					append(slices.DeleteFunc(slices.Clone(objs), func(x client.Object) bool { return x == o }), evil,
						e)...)
				require.NoError(t, err)
				s.Health = answering(s)
				state, err := roles.PlanNode(s)
				require.NoError(t, err)
				require.Contains(t, fate(state, "cali123", netip.MustParseAddr("172.31.0.1")), "group", node)
			}
		}
	}
}
