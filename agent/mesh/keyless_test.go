package mesh_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "subctl/agent/mesh"
	"subctl/agent/mesh/report"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
	"subctl/dataplane"
)

// carriers returns where packets of a plan for cluster west may leave: the cable names of its
// gateways, and "sibling".
func carriers(p Plan) (out []string) {
	for id := range p.GroupMembers {
		if id>>24 == dataplane.SiblingNexthopID {
			out = append(out, "sibling")
		}
	}
	for i, c := range p.Installed {
		if p.GroupMembers[p.Links[i].Hop] {
			out = append(out, c.Name)
		}
	}
	slices.Sort(out)
	return out
}

// The cables that an agent takes over from the one before carry nothing before their ends have
// agreed on keys again, while there is another way: another cable, or another gateway of the
// cluster. The last way is never withdrawn, and the kernel's WireGuard keeps its keys.
func TestCablesWithoutKeys(t *testing.T) {
	const first, second = westCable, west2Cable
	for name, test := range map[string]struct {
		sibling bool     // another gateway of the cluster reports a working cable
		keyed   []string // cables with keys
		made    bool     // the kernel has the others again, without keys
		unknown bool     // what the kernel says is not known
		want    []string
	}{
		"kept by the kernel":                  {true, []string{first, second}, false, false, []string{first, second}},
		"none, and another gateway":           {true, nil, false, false, []string{"sibling"}},
		"of one cable":                        {true, []string{second}, false, false, []string{second}},
		"of one cable, and no other gateway":  {false, []string{second}, false, false, []string{second}},
		"not yet, and another gateway":        {true, nil, true, false, []string{"sibling"}},
		"none, and no other gateway":          {false, nil, false, false, []string{first, second}},
		"the kernel cannot be asked for them": {true, nil, false, true, []string{first, second}},
	} {
		t.Run(name, func(t *testing.T) {
			s := crowd{siblings: 1, policy: cable.VXLANWireGuard, west: two(allDrivers)}.snapshot(t)
			s.Facts.ResilientGroups = true
			s.Health = answering(s)
			p, err := PlanGateway(s)
			require.NoError(t, err)
			require.Equal(t, []string{first, second}, carriers(p))

			reports := []*submarinerv1.Gateway{
				{ObjectMeta: metav1.ObjectMeta{Name: "gw", Namespace: submarinerv1.OperatorNamespace}},
			}
			reports[0].Status.Connections = report.Connections(p, role.Outcome{Now: s.Now, Health: s.Health})
			if test.sibling {
				gw2 := &submarinerv1.Gateway{
					ObjectMeta: metav1.ObjectMeta{Name: "gw2", Namespace: submarinerv1.OperatorNamespace},
				}
				gw2.Status.Connections = []submarinerv1.Connection{
					{Status: submarinerv1.Connected, Endpoint: submarinerv1.EndpointSpec{ClusterID: "west"}},
				}
				s = with(s, gw2)
			}
			s.Memory = RecallGateway("gw", false, reports, s.Now)
			s.Health = nil
			if !test.unknown {
				s.Cables = []dataplane.CableState{}
			}
			for i, l := range p.Links {
				state := dataplane.CableState{Device: l.StateDevice, Peer: l.State}
				if keyed := slices.Contains(test.keyed, p.Installed[i].Name); keyed {
					state.Up = true
					state.Handshake = s.Now
				} else if !test.made {
					continue
				}
				s.Cables = append(s.Cables, state)
			}
			p, err = PlanGateway(s)
			require.NoError(t, err)
			require.Equal(t, test.want, carriers(p))
			missing := !test.unknown && len(test.keyed) < 2
			require.Equal(t, missing, p.Keyless)
			require.Zero(t, p.Again)
			s.Health = answering(s)
			soon, err := PlanGateway(s)
			require.NoError(t, err)
			require.Equal(t, missing, soon.Again == KeysAgain, "a cable that answers has keys now")
			for _, c := range report.Connections(p, role.Outcome{Now: s.Now}) {
				if member := slices.Contains(test.want, c.Endpoint.CableName); !member {
					require.False(t, *c.Member)
					require.Equal(t, "no answer yet", c.MemberReason)
				}
			}
			for _, c := range p.Installed {
				require.True(t, p.Probes.Targets[role.ProbeName(c.Name, c.Device())].Fast,
					"they are pinged all the same")
			}
		})
	}
}
