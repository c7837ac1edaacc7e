package mesh_test

import (
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "subctl/agent/mesh"
	"subctl/agent/mesh/members"
	"subctl/agent/mesh/report"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
	"subctl/cable/natdiscovery"
)

// publishing returns what a snapshot's gateway announces of its octets, and the snapshot with its
// Endpoint.
func publishing(t *testing.T, s role.Snapshot) (string, role.Snapshot) {
	t.Helper()
	m, err := Of(s)
	require.NoError(t, err)
	e := report.Endpoint(m.Offer)
	objs := slices.DeleteFunc(all(s), func(o role.Object) bool {
		old, is := o.(*submarinerv1.Endpoint)
		return is && old.Spec.Hostname == s.Node && members.OfCluster("east", old)
	})
	return e.Spec.BackendConfig[submarinerv1.BackendOctets], as(role.NewSnapshot(s.Node, append(objs, e)...), s)
}

// withoutOwn returns a snapshot without the Endpoint of its node.
func withoutOwn(s role.Snapshot) role.Snapshot {
	return as(role.NewSnapshot(s.Node, slices.DeleteFunc(all(s), func(o role.Object) bool {
		e, is := o.(*submarinerv1.Endpoint)
		return is && e.Spec.Hostname == s.Node && members.OfCluster("east", e)
	})...), s)
}

// announcing returns the Endpoint of a gateway of another cluster that announces octets, or of an
// older version if they are empty.
func announcing(t *testing.T, s role.Snapshot, octets string) *submarinerv1.Endpoint {
	t.Helper()
	e := north(t, s, "west-gw", "99.89.1.11") // the octets of gw
	if octets != "" {
		e.Spec.BackendConfig = map[string]string{submarinerv1.BackendOctets: octets}
	}
	return e
}

// A gateway that has no Endpoint yet leaves octets that others have to them, and keeps what it has
// announced once, whoever comes or goes.
func TestOctetsStay(t *testing.T) {
	const own = "89.1.11"
	alone := withoutOwn(eastAndWest(t, "gw"))
	o, s := publishing(t, alone)
	require.Equal(t, own, o, "free, and what older versions expect")

	var moved string
	for _, other := range []string{own, ""} { // also an older version
		o, s = publishing(t, with(alone, announcing(t, alone, other)))
		require.NotEqual(t, own, o)
		require.True(t, moved == "" || moved == o)
		moved = o
		again, _ := publishing(t, s)
		require.Equal(t, moved, again)
		m, err := Of(s)
		require.NoError(t, err)
		require.Empty(t, m.Cables.Refused, "all are connected")
		require.Len(t, m.Accepted.Peers, 2)
	}
	objs := slices.DeleteFunc(all(
		s), func(o role.Object) bool { return o.GetName() == "north-submariner-cable-north-1" })
	again, _ := publishing(t, as(role.NewSnapshot(s.Node, objs...), s))
	require.Equal(t, moved, again, "the other one is gone")
	again, _ = publishing(t, with(alone, announcing(t, alone, own)))
	require.Equal(t, moved, again, "its Endpoint was deleted")

	next := with(alone, announcing(t, alone, moved))
	next = with(next, func() role.Object {
		e := announcing(t, alone, own)
		e.Name = "north-2"
		e.Spec.CableName = "north-2"
		return e
	}())
	o, _ = publishing(t, next)
	require.NotContains(t, []string{own, moved}, o, "others have both")
}

// Two gateways that have announced the same before they saw each other both move, and then stay.
func TestOctetsOfTwoThatStartAtOnce(t *testing.T) {
	_, s := publishing(t, withoutOwn(eastAndWest(t, "gw")))
	moved, s := publishing(t, with(s, announcing(t, s, "89.1.11")))
	require.NotEqual(t, "89.1.11", moved)
	again, _ := publishing(t, s)
	require.Equal(t, moved, again)
	theirs := cable.ChooseOctets("north", "west-gw", netip.MustParseAddr("99.89.1.11"), map[cable.Octets]bool{
		{89, 1, 11}: true,
	})
	require.NotEqual(t, moved, theirs.String())
}

// No other cluster can make a gateway move that has a cable, nor keep one without a cable moving,
// whatever its gateways announce.
func TestHostileOctets(t *testing.T) {
	const own = "89.1.11"
	_, s := publishing(t, withoutOwn(eastAndWest(t, "gw")))
	fresh := s
	fresh.Memory.Using = nil
	s.Memory.Using = map[string]role.Using{
		"submariner-cable-west-10-89-2-11": {Cluster: "west", Driver: "vxlan", Device: "vxlan-tunnel"},
	}
	o, _ := publishing(t, with(s, announcing(t, s, own)))
	require.Equal(t, own, o, "it is connected")

	moved, fresh := publishing(t, with(fresh, announcing(t, fresh, own)))
	require.NotEqual(t, own, moved)
	for range 3 {
		o, fresh = publishing(t, with(fresh, announcing(t, fresh, moved)))
		require.Equal(t, moved, o, "it moves once")
	}
}

// A member that announces the octets of another member's gateway, under a private IP of its own,
// does not get its packets, whether it comes before or after a restart of the agent.
func TestHostileOctetsOfAnother(t *testing.T) {
	s := eastAndWest(t, "gw")
	before, err := Of(s)
	require.NoError(t, err)
	thief := announcing(t, s, "89.2.11")
	thief.Spec.PrivateIP = "10.89.9.9"
	known := &submarinerv1.Cluster{ObjectMeta: metav1.ObjectMeta{
		// Older than west.
		Name: "north", Labels: map[string]string{submarinerv1.ClusterIDLabel: "north"},
		CreationTimestamp: metav1.Unix(1, 0),
	}, Spec: submarinerv1.ClusterSpec{ClusterID: "north"}}
	s = with(with(s, thief), known)
	report := reportOf(t, eastAndWest(t, "gw"))
	for name, incumbents := range map[string][]cable.Gateway{
		"running": before.Accepted.Incumbents, "restarted": IncumbentsIn([]*submarinerv1.Gateway{report}),
	} {
		s.Memory.Incumbents = incumbents
		m, err := Of(s)
		require.NoError(t, err)
		require.Len(t, m.Accepted.Peers, 1, name)
		require.Equal(t, "west", m.Accepted.Peers[0].Cluster, name)
		require.Len(t, m.Cables.Refused, 1)
		require.EqualError(t, m.Cables.Refused[0].Err,
			"address 241.89.2.11 between the gateways is already used by cluster west: "+cable.OneVTEP)
	}
}

// After a restart, an agent knows the octets that gateways had announced, also those in a report
// that had to be shortened.
func TestOctetsOfIncumbents(t *testing.T) {
	s := eastAndWest(t, "gw")
	for _, e := range role.List[*submarinerv1.Endpoint](s) {
		if e.Spec.Hostname == "west-gw" {
			e.Spec.BackendConfig = maps.Clone(e.Spec.BackendConfig)
			if e.Spec.BackendConfig == nil {
				e.Spec.BackendConfig = map[string]string{}
			}
			e.Spec.BackendConfig[submarinerv1.BackendOctets] = "7.8.9"
		}
	}
	report := reportOf(t, s)
	for i := range report.Status.Connections {
		for range 2 {
			held := IncumbentsIn([]*submarinerv1.Gateway{report})
			require.Len(t, held, 1)
			require.Equal(t, "241.7.8.9", held[0].VTEP(241).String())
			e := &report.Status.Connections[i].Endpoint // as it is shortened
			e.BackendConfig = map[string]string{
				submarinerv1.BackendOctets: e.BackendConfig[submarinerv1.BackendOctets],
			}
		}
	}
}

// Two other clusters whose gateways have the same private IP, behind NAT, are both connected, each
// at an address of its own.
func TestEqualPrivateIPsOfOthers(t *testing.T) {
	s := eastAndWest(t, "gw")
	same := announcing(t, s, "7.8.9")
	same.Spec.PrivateIP = "10.89.2.11"
	same.Spec.PublicIP = "203.0.113.9"
	same.Spec.Subnets = []string{"10.113.0.0/16"}
	known := &submarinerv1.Cluster{ObjectMeta: metav1.ObjectMeta{
		Name: "north", Labels: map[string]string{submarinerv1.ClusterIDLabel: "north"},
		Annotations: map[string]string{submarinerv1.ClusterSetsAnnotation: submarinerv1.DefaultClusterSet},
	}, Spec: submarinerv1.ClusterSpec{ClusterID: "north"}}
	s = with(with(s, same), known)
	s.Paths = map[string]natdiscovery.Path{
		"submariner-cable-west-10-89-2-11": {Address: netip.MustParseAddr("10.89.2.11"), Done: true},
		same.Spec.CableName:                {Address: netip.MustParseAddr("203.0.113.9"), Done: true},
	}
	p, err := PlanGateway(s)
	require.NoError(t, err)
	require.Empty(t, p.Mesh.Cables.Refused)
	to := map[string]string{}
	for i, c := range p.Installed {
		to[c.Cluster] = c.Address.String() + " " + p.Links[i].IP.String()
	}
	require.Equal(t, map[string]string{"west": "10.89.2.11 241.89.2.11", "north": "203.0.113.9 241.7.8.9"}, to)
}
