package mesh_test

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	. "subctl/agent/mesh"
	"subctl/agent/mesh/report"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/dataplane"
)

// A gateway reports the use of global addresses, and warns if one has few ports left for a
// destination. The warning stays the same while the number of connections changes.
func TestEgressPorts(t *testing.T) {
	s := withoutEndpoints(t)
	s.Standing = role.Standing{Active: true}
	use := func(most int) dataplane.SourceUse {
		return dataplane.SourceUse{
			Source:      netip.MustParseAddr("242.1.0.1"),
			Connections: 60_000,
			Most:        most,
			Proto:       "tcp",
			To:          netip.MustParseAddrPort("242.2.0.9:80"),
		}
	}
	var messages []string
	for most, scarce := range map[int]bool{52_427: false, 52_428: true, 65_536: true} {
		s.Flows = role.Flows{Known: true, Sources: []dataplane.SourceUse{use(most)}}
		gw, _ := reported(t, s)
		require.Equal(
			t,
			[]submarinerv1.EgressUse{
				{
					Address:            "242.1.0.1",
					Connections:        60_000,
					Busiest:            "tcp 242.2.0.9:80",
					BusiestConnections: int64(most),
				},
			},
			gw.Status.GlobalEgress,
		)
		c := meta.FindStatusCondition(gw.Status.Conditions, report.ConditionEgressPorts)
		if require.Equal(t, scarce, c != nil, most); scarce {
			require.True(t, role.Wrong(*c))
			messages = append(messages, c.Message)
		}
	}
	require.Equal(t, messages[0], messages[1])
	require.Equal(t,
		"242.1.0.1 has few ports left for tcp 242.2.0.9:80: allocate more addresses (spec.numGlobalIPs, or spec.numberOfIPs of a GlobalEgressIP), or addresses of their own to the pods that connect most",
		messages[0])
	s.Flows = role.Flows{}
	gw, _ := reported(t, s)
	require.Empty(t, gw.Status.GlobalEgress, "unknown")

	before := &submarinerv1.Gateway{
		ObjectMeta: metav1.ObjectMeta{Name: "gw", Namespace: submarinerv1.OperatorNamespace},
	}
	before.Status.Conditions = []metav1.Condition{
		{Type: report.ConditionEgressPorts, Status: metav1.ConditionFalse, Reason: "Scarce", Message: messages[0]},
	}
	for name, test := range map[string]struct {
		standing role.Standing
		flows    role.Flows
		stays    bool
	}{
		"the next agent has not counted yet": {role.Standing{Active: true}, role.Flows{}, true},
		"it has counted, and there is room":  {role.Standing{Active: true}, role.Flows{Known: true}, false},
		"it is not active":                   {role.Standing{}, role.Flows{}, false},
	} {
		s.Standing = test.standing
		s.Flows = test.flows
		gw, _ := reported(t, with(s, before))
		c := meta.FindStatusCondition(gw.Status.Conditions, report.ConditionEgressPorts)
		if require.Equal(t, test.stays, c != nil, name); c != nil {
			require.Equal(t, messages[0], c.Message)
		}
	}
}

// The same address in the Endpoints of two gateways is reported, whether they are of this cluster
// or of another one. Standbys do not count.
func TestAnnouncedTwice(t *testing.T) {
	gatewayOf := func(host, ip, drain string, returned ...string) client.Object {
		return announce(func(e *submarinerv1.EndpointSpec) {
			e.Hostname = host
			e.PrivateIP = ip
			e.CableName = "submariner-cable-thief-" + host
			e.AllocatedIPs = returned
			if drain != "" {
				e.BackendConfig[submarinerv1.BackendDrain] = drain
			}
		})[1]
	}
	named := func(o client.Object) client.Object {
		o.SetName("thief-" + o.(*submarinerv1.Endpoint).Spec.CableName)
		return o
	}
	first := named(gatewayOf("gw-b", "10.89.3.16", "", "10.150.0.1", "10.150.0.3"))
	for name, test := range map[string]struct {
		other client.Object
		want  string
	}{
		"one each":  {gatewayOf("gw-a", "10.89.3.17", "", "10.150.0.2", "10.150.0.2"), ""},
		"a standby": {gatewayOf("gw-a", "10.89.3.17", submarinerv1.Standby, "10.150.0.1"), ""},
		"the same": {
			gatewayOf("gw-a", "10.89.3.17", "", "10.150.0.1", "10.150.0.2"),
			"gateways gw-a, gw-b of cluster thief announce the same address 10.150.0.1: replies to it take one of them, and connections through the others stop. subctl show globalnet --who 10.150.0.1 tells which object of the cluster has it",
		},
	} {
		s := besides(t, "gw", announce(func(*submarinerv1.EndpointSpec) {})[0], first, named(test.other))
		s.Standing = role.Standing{Active: true}
		s.Now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
		gw, _ := reported(t, s)
		c := meta.FindStatusCondition(gw.Status.Conditions, report.ConditionEgressDistinct)
		if test.want == "" {
			require.Nil(t, c, name)
			continue
		}
		require.NotNil(t, c, name)
		require.True(t, role.Wrong(*c))
		require.Equal(t, test.want, c.Message, name)
	}
}

// A gateway reports which objects with global addresses its kernel holds, and reports the same ones
// while it does not hold the plan. A gateway that is not active translates nothing.
func TestProgrammed(t *testing.T) {
	s := withoutEndpoints(t)
	is := func(name, version string) *submarinerv1.GlobalIngressIP {
		return &submarinerv1.GlobalIngressIP{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, ResourceVersion: version},
		}
	}
	s = with(with(s, is("db", "1007")), is("web", "999"))
	s.Standing = role.Standing{Active: true}
	gw, _ := reported(t, s)
	require.Nil(t, gw.Status.Programmed, "there is no global network")

	s.Submariner().Spec.GlobalCIDR = "242.9.0.0/16"
	gw, _ = reported(t, s)
	require.Equal(t, &submarinerv1.ProgrammedVersions{GlobalIngressIPs: "1007"}, gw.Status.Programmed)

	p, err := PlanGateway(s)
	require.NoError(t, err)
	o := p.Outcome(s.Now, nil, errors.New("nftables is missing"))
	programmed := func(s role.Snapshot) *submarinerv1.ProgrammedVersions {
		all := report.Gateway(s, p, o).Apply
		i := slices.IndexFunc(all, isGateway)
		return all[i].(*submarinerv1.Gateway).Status.Programmed
	}
	require.Nil(t, programmed(s))
	before := gw.DeepCopy()
	before.Status.Programmed.GlobalIngressIPs = "500"
	require.Equal(t, before.Status.Programmed, programmed(with(s, before)))

	s.Standing = role.Standing{}
	gw, _ = reported(t, s)
	require.Nil(t, gw.Status.Programmed)
}
