package mesh_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "subctl/agent/mesh"
	"subctl/agent/mesh/members"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
	"subctl/dataplane/dataplanetest"
)

// north returns an Endpoint of a cluster that is younger than all others, like that of another
// cluster's gateway.
func north(t *testing.T, s role.Snapshot, like, privateIP string) *submarinerv1.Endpoint {
	t.Helper()
	all := role.List[*submarinerv1.Endpoint](s)
	i := slices.IndexFunc(all, func(e *submarinerv1.Endpoint) bool { return e.Spec.Hostname == like })
	require.GreaterOrEqual(t, i, 0)
	e := all[i].DeepCopy()
	e.Name = "north-submariner-cable-north-1"
	e.Labels = map[string]string{submarinerv1.ClusterIDLabel: "north"}
	e.Spec.ClusterID = "north"
	e.Spec.CableName = "submariner-cable-north-1"
	e.Spec.PrivateIP = privateIP
	e.Spec.Subnets = []string{"10.113.0.0/16"}
	e.Spec.HealthCheckIP = ""
	e.Spec.BackendConfig = nil
	return e
}

// A member that arrives later takes nothing away from a standby that is known, although its own
// gateway is active: otherwise it could choose when another cluster has no gateway to fall back to.
func TestHostileHeirOfAStandby(t *testing.T) {
	s := standbys(t, "gw")
	before, err := Of(s)
	require.NoError(t, err)
	s.Memory.Incumbents = before.Accepted.Incumbents
	thief := north(t, s, "west-gw2", "11.89.2.12") // both would have the address 241.89.2.12
	m, err := Of(with(s, thief))
	require.NoError(t, err)
	var accepted []string
	for _, p := range m.Accepted.Peers {
		accepted = append(accepted, p.Cluster+" "+p.Host)
	}
	require.Equal(t, []string{"west west-gw", "west west-gw2"}, accepted)
	require.Len(t, m.Accepted.Refused, 1)
	require.ErrorContains(t, m.Accepted.Refused[0].Err, "address 241.89.2.12 between the gateways is already used by")
}

// While a cluster has only standbys, as its active gateway is lost and nobody is elected yet, its
// next hop group stays before that of a younger cluster: one that has chosen its ID so that the IDs
// of the groups collide would get it otherwise.
func TestHostileGroupOfStandbys(t *testing.T) {
	s := standbys(t, "gw")
	west := slices.IndexFunc(role.List[*submarinerv1.Cluster](s),
		func(c *submarinerv1.Cluster) bool { return c.Spec.ClusterID == "west" })
	require.GreaterOrEqual(t, west, 0)
	role.List[*submarinerv1.Cluster](s)[west].CreationTimestamp = metav1.Unix(1, 0)
	attacker := north(t, s, "west-gw2", "10.89.9.9")
	both := with(s, attacker)
	m, err := Of(both)
	require.NoError(t, err)
	require.Equal(t, []string{"west", "north"}, m.Accepted.Clusters())
	for _, e := range role.List[*submarinerv1.Endpoint](both) {
		if e.Spec.ClusterID == "west" {
			e.Spec.BackendConfig = map[string]string{submarinerv1.BackendDrain: submarinerv1.Standby}
		}
	}
	m, err = Of(both)
	require.NoError(t, err)
	require.Len(t, m.Accepted.Peers, 3)
	require.Equal(t, []string{"west", "north"}, m.Accepted.Clusters())
}

// Whoever takes over a node, and labels it as a gateway node, cannot choose its address so that a
// gateway of the cluster loses its mark: connections to Services that have come through this
// gateway would be answered through another one.
func TestHostileMark(t *testing.T) {
	s := standbys(t, "worker")
	marks := func(s role.Snapshot) map[string]uint32 {
		t.Helper()
		p, err := PlanRoute(s)
		require.NoError(t, err)
		out := map[string]uint32{}
		for _, g := range dataplanetest.ReturnGateways(p.State) {
			out[g.MAC] = g.Mark
		}
		return out
	}
	before := marks(s)
	require.Len(t, before, 2)
	for last := range 200 {
		taken := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name:              "a",
			CreationTimestamp: metav1.Unix(1e9, 0),
			Labels:            map[string]string{submarinerv1.GatewayNodeLabel: "true"},
		}}
		taken.Status.Addresses = []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("10.89.7.%d", last+1)},
		}
		after := marks(with(s, taken))
		require.Len(t, after, 3)
		for mac, mark := range before {
			require.Equal(t, mark, after[mac], "node at %v", taken.Status.Addresses)
		}
	}
}

// However many gateways of a cluster announce that they are standbys, draining or drained, by
// turns, packets to it have a way, those to other clusters stay where they are, and no gateway is
// used while one that is preferred answers.
func TestHostileDrains(t *testing.T) {
	marks := []string{"", submarinerv1.Draining, submarinerv1.Standby, submarinerv1.Drained}
	s := standbys(t, "gw")
	for _, a := range marks {
		for _, b := range marks {
			for _, e := range role.List[*submarinerv1.Endpoint](s) {
				switch e.Spec.Hostname {
				case "west-gw":
					e.Spec.BackendConfig = map[string]string{submarinerv1.BackendDrain: a}
				case "west-gw2":
					e.Spec.BackendConfig = map[string]string{submarinerv1.BackendDrain: b}
				}
			}
			first, _ := cable.ParseDrain(a)
			second, _ := cable.ParseDrain(b)
			got := ways(t, s)
			switch {
			case first < second && (second >= cable.Standby || first != cable.InService):
				require.Equal(t, []string{"241.89.2.11"}, got, "%q and %q", a, b)
			case second < first && (first >= cable.Standby || second != cable.InService):
				require.Equal(t, []string{"241.89.2.12"}, got, "%q and %q", a, b)
			default:
				require.Equal(t, []string{"241.89.2.11", "241.89.2.12"}, got, "%q and %q", a, b)
			}
		}
	}
}

// A gateway agent may write Endpoints of other clusters. Whoever has taken it over cannot make
// another gateway announce an address of the attacker's choice with one that names the node of that
// gateway and lacks the label of copies.
func TestHostileEndpointOfAnotherCluster(t *testing.T) {
	s := standbys(t, "gw")
	forged := &submarinerv1.Endpoint{ObjectMeta: metav1.ObjectMeta{Name: "a-forged"}, Spec: submarinerv1.EndpointSpec{
		ClusterID: "zz", Hostname: "gw", PublicIP: "203.0.113.66", Subnets: []string{},
	}}
	require.Equal(t, members.PublishedIP(s), members.PublishedIP(with(s, forged)))
	require.Equal(t, members.OwnEndpoints(s), members.OwnEndpoints(with(s, forged)))

	s = as(
		role.NewSnapshot(
			"gw",
			slices.DeleteFunc(all(s),
				func(o role.Object) bool {
					e, ok := o.(*submarinerv1.Endpoint)
					return ok && e.Spec.Hostname == "gw"
				})...),
		s,
	)
	role.Find[*corev1.Node](s, "gw").Labels = nil
	s.Memory.Label.Seen = true
	require.Zero(t, members.Label(with(s, forged)), "it does not keep a node among the gateways, either")
}
