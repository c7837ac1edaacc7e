package parts

import (
	"context"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/agent/discovery"
	"subctl/agent/role"
	"subctl/agent/roles"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable/natdiscovery"
	"subctl/internal/kubetest"
)

// found is a discovery with the result that a test specifies.
type found struct {
	discovery.Search
	publicIP netip.Addr
	again    []string
}

func (f *found) Start(context.Context) error         { return nil }
func (f *found) Set(s discovery.Search)              { f.Search = s }
func (f *found) Again(name string)                   { f.again = append(f.again, name) }
func (f *found) Paths() map[string]natdiscovery.Path { return nil }
func (f *found) PublicIP(was netip.Addr) netip.Addr {
	if f.publicIP.IsValid() {
		return f.publicIP
	}
	return was
}

// planned returns the snapshot and the plan of the active gateway of a scenario.
func planned(t *testing.T, scenario string) (role.Snapshot, role.Plan) {
	t.Helper()
	s := role.NewSnapshot("gw", kubetest.Scenario(t, "../../testdata/scenarios/"+scenario+".txtar")...)
	s.Facts = submarinerv1.NodeFacts{PrivateIP: "10.89.1.11", MTU: 1500}
	s.Standing = role.Standing{Active: true, Speaker: true, Gateways: []string{"gw"}}
	s.Memory = roles.Gateway().Recall("gw", false, role.List[*submarinerv1.Gateway](s), s.Now)
	p, err := roles.Gateway().Plan(s)
	require.NoError(t, err)
	return s, p
}

// A gateway searches for others while it is active, and again for those whose cable is
// broken.
func TestSearchesWhileActive(t *testing.T) {
	f := &found{}
	part := pathFinder{f}
	s, p := planned(t, "two-clusters")
	part.Act(
		s,
		p,
		&role.Outcome{
			Health: map[string]role.Health{
				"a": {Status: submarinerv1.ConnectionError},
				"b": {Status: submarinerv1.Connected},
			},
		},
	)
	require.Len(t, f.Peers, 1)
	require.Len(t, f.Cables, 1)
	require.Equal(t, []string{"a"}, f.again)

	part.Act(s, role.Plan{}, &role.Outcome{})
	require.Len(t, f.Peers, 1, "a snapshot with a mistake changes nothing")

	s.Standing = role.Standing{}
	part.Act(s, p, &role.Outcome{})
	require.Empty(t, f.Peers)
}

// The public address is the one that other gateways see; after a restart it is the one
// that was published before, until they have been asked.
func TestPublicAddressIsTheOneSeen(t *testing.T) {
	e := &submarinerv1.Endpoint{
		ObjectMeta: metav1.ObjectMeta{Name: "e"},
		Spec:       submarinerv1.EndpointSpec{ClusterID: "east", Hostname: "gw", PublicIP: "198.51.100.1"},
	}
	s := inEast("gw", e)
	require.NoError(t, pathFinder{&found{}}.Observe(&s))
	require.Equal(t, "198.51.100.1", s.PublicIP.String())
	require.NoError(t, pathFinder{&found{publicIP: netip.MustParseAddr("198.51.100.7")}}.Observe(&s))
	require.Equal(t, "198.51.100.7", s.PublicIP.String())
}

// A gateway that was refused for what it announces is not searched for, and does not keep
// others from being searched for.
func TestRefusedBarNothing(t *testing.T) {
	f := &found{}
	s, p := planned(t, "incumbent")
	pathFinder{f}.Act(s, p, &role.Outcome{})
	require.Len(t, f.Peers, 1)
	require.Len(t, f.Cables, 1)
	require.Equal(t, f.Peers[0].Name, f.Cables[0].Name)
}
