package mesh_test

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "subctl/agent/mesh"
	"subctl/agent/mesh/report"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
	"subctl/dataplane"
	"subctl/internal/kubetest"
	"subctl/policy"
)

// crowd is a gateway of east, and the gateways of west, with a policy for the pair.
type crowd struct {
	siblings int      // other active gateways of east
	drivers  []string // that east offers; nil for all
	policy   string   // its driver
	settings string   // of the policy
	required bool     // encryption
	nat      bool     // west is behind NAT
	west     []westGateway
}

// westGateway is what a gateway of west announces.
type westGateway struct {
	siblings string // "true" or "false"; older versions do not tell
	drivers  string // that it offers
}

const (
	allDrivers = "vxlan,wireguard,vxlan+wireguard,ipsec,vxlan+ipsec"
	west2Cable = "submariner-cable-west-10-89-2-12"
)

// snapshot returns what the gateway of east knows.
func (c crowd) snapshot(t *testing.T) role.Snapshot {
	t.Helper()
	var objs []role.Object
	for _, o := range kubetest.Scenario(t, "../../testdata/scenarios/two-active-gateways.txtar") {
		switch o := o.(type) {
		case *v1alpha1.Submariner:
			o.Spec.CableDrivers = c.drivers
			o.Spec.CableDriver = ""
			o.Spec.MultiActiveGatewayEnabled = c.siblings > 0
		case *submarinerv1.RouteAgent:
			o.Status.Node.IPsec = submarinerv1.EngineFact{Name: "kernel"}
			o.Status.Node.WireGuard = submarinerv1.EngineFact{Name: "kernel"}
		case *submarinerv1.Cluster:
			if submarinerv1.IsCopy(o) {
				o.Spec.PublicKey = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo="
			}
		case *submarinerv1.Endpoint:
			if !submarinerv1.IsCopy(o) && o.Spec.Hostname == "gw2" && c.siblings == 0 {
				continue
			}
			if i := slices.Index([]string{westCable, west2Cable}, o.Spec.CableName); i >= len(c.west) {
				continue
			} else if i >= 0 {
				key := []string{
					"hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=",
					"3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08=",
				}[i]
				o.Spec.NATEnabled = c.nat
				o.Spec.BackendConfig = map[string]string{
					submarinerv1.BackendDrivers: c.west[i].drivers,
					"publicKey":                 key,
				}
				if c.west[i].siblings != "" {
					o.Spec.BackendConfig[submarinerv1.BackendSiblings] = c.west[i].siblings
				}
			}
		}
		objs = append(objs, o)
	}
	p := &v1alpha1.CablePolicies{
		ObjectMeta: metav1.ObjectMeta{
			Name: "lab", Namespace: submarinerv1.OperatorNamespace,
			Labels: map[string]string{submarinerv1.ClusterIDLabel: "west", submarinerv1.ClusterSetLabel: "default"},
		},
		ConnectionPolicies: []v1alpha1.CablePolicySpec{{CableDriver: c.policy, CableOptions: &v1alpha1.CableOptions{}}},
	}
	if c.required {
		p.ConnectionPolicies[0].CableOptions.Encryption = submarinerv1.EncryptionRequired
	}
	if c.settings != "" {
		p.ConnectionPolicies[0].CableOptions.Data = map[string]string{v1alpha1.CableCustomConfig: c.settings}
	}
	s, err := FromReports("gw", append(objs, p)...)
	require.NoError(t, err)
	s.PoliciesDigest = policy.Digest([]*v1alpha1.CablePolicies{p})
	s.Now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	return s
}

// one and two are the gateways of west where it has one or two.
func one(drivers string) []westGateway { return []westGateway{{"false", drivers}} }

func two(drivers string) []westGateway { return []westGateway{{"true", drivers}, {"true", drivers}} }

// Where one of two clusters has several active gateways, the combination without a limit takes the
// place of a driver that connects to one gateway of a cluster, if both ends offer it and it can
// connect them.
func TestStandIn(t *testing.T) {
	const westHasTwo = "wireguard connects to one gateway of a cluster, and cluster west has several: vxlan+wireguard is in its place"
	for name, test := range map[string]struct {
		crowd
		want    []string // drivers of the cables
		reason  string
		refused string // the second gateway
	}{
		"one gateway each": {crowd{policy: "wireguard", west: one(allDrivers)}, []string{"wireguard"}, "", ""},
		"two there": {
			crowd{policy: "wireguard", west: two(allDrivers)},
			[]string{"vxlan+wireguard", "vxlan+wireguard"},
			westHasTwo,
			"",
		},
		"two there, ipsec": {
			crowd{policy: "ipsec", west: two(allDrivers)},
			[]string{"vxlan+ipsec", "vxlan+ipsec"},
			"ipsec connects to one gateway of a cluster, and cluster west has several: vxlan+ipsec is in its place",
			"",
		},
		"two here": {
			crowd{policy: "wireguard", siblings: 1, west: one(allDrivers)},
			[]string{"vxlan+wireguard"},
			"wireguard connects to one gateway of a cluster, and cluster east has several: vxlan+wireguard is in its place",
			"",
		},
		"two at both ends": {
			crowd{policy: "wireguard", siblings: 1, west: two(allDrivers)},
			[]string{"vxlan+wireguard", "vxlan+wireguard"},
			"wireguard connects to one gateway of a cluster, and clusters east and west have several: vxlan+wireguard is in its place",
			"",
		},
		"a driver without one": {crowd{policy: "vxlan", west: two(allDrivers)}, []string{"vxlan", "vxlan"}, "", ""},
		"the combination": {
			crowd{policy: "vxlan+ipsec", west: two(allDrivers)},
			[]string{"vxlan+ipsec", "vxlan+ipsec"},
			"",
			"",
		},
		"encryption required": {
			crowd{policy: "ipsec", required: true, west: two(allDrivers)},
			[]string{"vxlan+ipsec", "vxlan+ipsec"},
			"ipsec connects to one gateway of a cluster, and cluster west has several: vxlan+ipsec is in its place",
			"",
		},
		"not offered there": {
			crowd{policy: "wireguard", required: true, west: two("vxlan,wireguard")},
			[]string{"wireguard"},
			"",
			"wireguard connects to one gateway of cluster west (submariner-cable-west-10-89-2-11): use vxlan+wireguard, which connects to all of them, but cluster west does not offer vxlan+wireguard",
		},
		"not offered here": {
			crowd{policy: "wireguard", drivers: []string{"wireguard"}, west: two(allDrivers)},
			[]string{"wireguard"},
			"",
			"which connects to all of them, but cluster east does not offer vxlan+wireguard: it is not in Submariner.spec.cableDrivers",
		},
		"only the combination is offered": {
			crowd{policy: "wireguard", drivers: []string{"vxlan+wireguard"}, west: two(allDrivers)},
			nil,
			"",
			"cable policy lab wants wireguard: cluster east does not offer wireguard",
		},
		"it cannot connect them": {
			crowd{policy: "ipsec", nat: true, west: two(allDrivers)},
			[]string{"ipsec"},
			"",
			"which connects to all of them, but cluster west is behind NAT",
		},
		"it can, through NAT": {
			crowd{policy: "wireguard", nat: true, west: two(allDrivers)},
			[]string{"vxlan+wireguard", "vxlan+wireguard"},
			westHasTwo,
			"",
		},
		"an older version": {
			crowd{policy: "wireguard", west: []westGateway{{"", allDrivers}, {"", allDrivers}}},
			[]string{"wireguard"},
			"",
			"use vxlan+wireguard, which connects to all of them",
		},
		"an older version, two here": {
			crowd{policy: "wireguard", siblings: 1, west: []westGateway{{"", allDrivers}}},
			[]string{"wireguard"},
			"",
			"",
		},
		"one of them has not told yet": {
			crowd{policy: "wireguard", west: []westGateway{{"false", allDrivers}, {"true", allDrivers}}},
			[]string{"wireguard", "vxlan+wireguard"},
			"", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := test.snapshot(t)
			s.Health = answering(s)
			p, err := PlanGateway(s)
			require.NoError(t, err)
			var got []string
			for _, c := range p.Mesh.Cables.Wanted {
				got = append(got, c.Driver.Name())
			}
			require.Equal(t, test.want, got)
			for _, c := range report.Connections(p, role.Outcome{Now: s.Now, Health: s.Health}) {
				if c.UsingIP == "" {
					require.Contains(t, c.StatusMessage, test.refused)
					continue
				}
				require.Equal(t, c.Driver, c.DesiredDriver, "not like a change that is under way")
				require.NotEqual(t, submarinerv1.ConnectionError, c.Status)
				if name != "one of them has not told yet" {
					require.Equal(t, test.reason, c.DriverReason)
				}
			}
			require.Equal(t, test.refused != "", len(p.Mesh.Cables.Refused) > 0)
			require.Empty(t, p.Mesh.Cables.KeptReasons)
			w, err := FromReports("worker", all(s)...)
			require.NoError(t, err)
			w.PoliciesDigest = s.PoliciesDigest
			m, err := Of(w)
			require.NoError(t, err)
			for i, c := range m.Cables.Wanted {
				require.Equal(t, test.want[i], c.Driver.Name(), "the other nodes know the device, and the MTU")
			}
		})
	}
}

// The settings of a policy for wireguard apply to the driver in its place, and override the
// cluster's own.
func TestSettingsOfStandIn(t *testing.T) {
	s := crowd{policy: "wireguard", west: two(allDrivers), settings: "keepalive: 7s\nmtu: 1300"}.snapshot(t)
	m, err := Of(s)
	require.NoError(t, err)
	require.Len(t, m.Cables.Wanted, 2)
	for _, c := range m.Cables.Wanted {
		require.Equal(t, "vxlan+wireguard", c.Driver.Name())
		require.Equal(t, cable.Config{"keepalive": "7s", "mtu": "1300"}, c.Config)
		require.Equal(t, c.Config, c.Shared)
		require.Equal(t, 1300, c.MTU(m.Offer.Local))
		require.Equal(t, "lab", c.Policy)
	}
}

// West gets a second active gateway, and loses it. The pair changes its cable as after a change of
// policy: the old one carries the traffic until the new one has answered.
func TestStandInTransitions(t *testing.T) {
	s := crowd{policy: "wireguard", west: one(allDrivers)}.snapshot(t)
	pass := func(west []westGateway, answer ...string) Plan {
		t.Helper()
		next := crowd{policy: "wireguard", west: west}.snapshot(t)
		next.Now = s.Now.Add(time.Second)
		next.Memory = s.Memory
		next.Health = map[string]role.Health{}
		for _, a := range answer {
			next.Health[a] = role.Health{Status: submarinerv1.Connected}
		}
		p, err := PlanGateway(next)
		require.NoError(t, err)
		s = next
		s.Memory.Using = p.Using
		s.Memory.First = p.First
		return p
	}
	carries := func(p Plan) (out []string) {
		for _, c := range p.Installed {
			if c.Carries() {
				out = append(out, c.Name[len(c.Name)-2:]+" "+c.Driver.Name())
			}
		}
		return out
	}
	alone := role.ProbeName(westCable, "submariner")
	first := role.ProbeName(westCable, "vxlan-wireguard")
	second := role.ProbeName(west2Cable, "vxlan-wireguard")
	require.Equal(t, []string{"11 wireguard"}, carries(pass(one(allDrivers), alone)))

	p := pass(two(allDrivers))
	require.Equal(t, []string{"11 wireguard"}, carries(p))
	require.Equal(t, "vxlan+wireguard", p.Installed[p.Next(p.Installed[0])].Driver.Name())
	c := report.Connections(p, role.Outcome{
		Now:    s.Now,
		Health: map[string]role.Health{westCable: {Status: submarinerv1.Connected}},
	})[0]
	require.Equal(t, []string{"wireguard", "vxlan+wireguard"}, []string{c.Driver, c.DesiredDriver})
	require.Contains(t, c.DriverReason, "cluster west has several")
	require.Equal(t, []string{"11 wireguard", "12 vxlan+wireguard"}, carries(pass(two(allDrivers), second)))
	require.Equal(t, []string{"11 vxlan+wireguard", "12 vxlan+wireguard"},
		carries(pass(two(allDrivers), first, second)))

	s.Now = s.Now.Add(OldCableGrace)
	p = pass(one(allDrivers))
	require.Equal(t, []string{"11 vxlan+wireguard"}, carries(p))
	require.Equal(t, "wireguard", p.Installed[p.Next(p.Installed[0])].Driver.Name())
	require.Equal(t, []string{"11 wireguard"}, carries(pass(one(allDrivers), alone)))
}

// A member cannot make others plan two cables of a driver that can have only one: the cable that
// another gateway of the cluster used is given up.
func TestHostileSecondCable(t *testing.T) {
	for _, driver := range []string{"wireguard", "ipsec"} {
		s := crowd{policy: driver, west: []westGateway{{"true", allDrivers}, {"false", driver}}}.snapshot(t)
		device := map[string]string{"wireguard": "submariner", "ipsec": "ipsec-tunnel"}[driver]
		old := role.Using{Cluster: "west", Driver: driver, Device: device, Policy: "lab"}
		s.Memory.Using = map[string]role.Using{
			westCable:  old,
			west2Cable: {Cluster: "west", Driver: driver, Device: device, Policy: "lab", Before: &old},
		}
		p, err := PlanGateway(s)
		require.NoError(t, err)
		n := 0
		for _, c := range p.Installed {
			if c.Driver.Name() == driver {
				n++
				require.Equal(t, west2Cable, c.Name)
			}
		}
		require.Equal(t, 1, n)
	}
}

// A gateway announces whether its cluster has others that carry traffic.
func TestSiblingsAnnounced(t *testing.T) {
	for name, test := range map[string]struct {
		multi    bool
		sibling  string // what its Endpoint announces of its drain; "none" if there is no Endpoint
		standing role.Standing
		want     bool
	}{
		"alone":                    {true, "none", role.Standing{Active: true}, false},
		"several":                  {true, "", role.Standing{Active: true}, true},
		"several, one is draining": {true, submarinerv1.Draining, role.Standing{Active: true}, true},
		"the other is about to leave": {
			false,
			"",
			role.Standing{Active: true, Speaker: true, Gateways: []string{"gw", "worker"}},
			true,
		},
		"the other is leaving": {
			false,
			submarinerv1.Draining,
			role.Standing{Active: true, Speaker: true, Gateways: []string{"gw", "worker"}},
			true,
		},
		"the other is a standby": {
			false,
			submarinerv1.Standby,
			role.Standing{Active: true, Speaker: true, Gateways: []string{"gw", "worker"}},
			false,
		},
		"this one is leaving":   {false, "", role.Standing{Active: true, Drain: cable.Draining}, true},
		"this one is a standby": {false, "", role.Standing{Active: true, Drain: cable.Standby}, false},
		"what a lost gateway has left": {
			false,
			"",
			role.Standing{Active: true, Speaker: true, Gateways: []string{"gw"}},
			false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := withoutEndpoints(t)
			role.Find[*corev1.Node](s, "worker").Labels = map[string]string{submarinerv1.GatewayNodeLabel: "true"}
			if test.sibling != "none" {
				e := ownEndpoint("worker", "10-89-1-12")
				e.Spec.BackendConfig = map[string]string{submarinerv1.BackendDrain: test.sibling}
				s = with(s, e)
			}
			s.Submariner().Spec.MultiActiveGatewayEnabled = test.multi
			s.Standing = test.standing
			_, ep := reported(t, s)
			require.Equal(t, strconv.FormatBool(test.want), ep.Spec.BackendConfig[submarinerv1.BackendSiblings])
			g, err := cable.Parse(ep.Spec)
			require.NoError(t, err)
			require.Equal(t, []bool{test.want, true}, []bool{g.Siblings, g.TellsSiblings}, "the other clusters read it")
		})
	}
}

// A stage leaves the ones before it as they are: the places of a driver that connects to one
// gateway of a cluster are free again.
func TestStagesLeaveThePlaces(t *testing.T) {
	older := []westGateway{{"", allDrivers}, {"", allDrivers}}
	s := crowd{policy: "wireguard", west: older}.snapshot(t)
	m, err := Of(s)
	require.NoError(t, err)
	require.Len(t, m.Cables.Refused, 1)
	m.Accepted.Peers = m.Accepted.Peers[1:]
	require.Len(t, Connect(s, m.Membership, m.Offer, m.Accepted).Wanted, 1, "the other gateway")

	s = crowd{policy: "vxlan", west: older}.snapshot(t)
	was := role.Using{Cluster: "west", Driver: cable.WireGuard, Device: dataplane.WireGuardDevice}
	s.Memory.Using = map[string]role.Using{westCable: was, west2Cable: was}
	m, err = Of(s)
	require.NoError(t, err)
	require.Len(t, m.Cables.Wanted, 2)
	for _, first := range []string{westCable, west2Cable} {
		held := Direct(m).Installed
		require.Equal(t, []string{first, cable.WireGuard}, []string{held[0].Name, held[0].Driver.Name()})
		slices.Reverse(m.Cables.Wanted)
	}
}
