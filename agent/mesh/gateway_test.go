package mesh_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	. "subctl/agent/mesh"
	"subctl/agent/mesh/members"
	"subctl/agent/mesh/report"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
	"subctl/internal/kubetest"
)

// Carrying traffic and speaking for the cluster are separate: an active gateway holds
// cables and publishes its Endpoint, the speaker publishes the Cluster and the policies.
func TestStandings(t *testing.T) {
	policy := &v1alpha1.CablePolicies{
		ObjectMeta:         metav1.ObjectMeta{Name: "lab", Namespace: submarinerv1.OperatorNamespace},
		ConnectionPolicies: []v1alpha1.CablePolicySpec{{CableDriver: "vxlan"}},
	}
	for _, test := range []struct {
		name     string
		standing role.Standing
		cables   bool
		writes   []string
	}{
		{"neither", role.Standing{}, false, []string{"Gateway gw"}},
		{
			"standby",
			role.Standing{Active: true, Drain: cable.Standby},
			true,
			[]string{"Endpoint east-submariner-cable-east-10-89-1-11", "Gateway gw"},
		},
		{
			"active",
			role.Standing{Active: true},
			true,
			[]string{"Endpoint east-submariner-cable-east-10-89-1-11", "Gateway gw"},
		},
		{
			"speaker",
			role.Standing{Speaker: true, Gateways: []string{"worker"}},
			false,
			[]string{"Cluster east", "CablePolicies lab", "Submariner submariner", "Gateway gw"},
		},
		{
			"both",
			role.Standing{Active: true, Speaker: true, Gateways: []string{"gw"}},
			true,
			[]string{
				"Endpoint east-submariner-cable-east-10-89-1-11",
				"Cluster east",
				"CablePolicies lab",
				"Submariner submariner",
				"Gateway gw",
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := withoutEndpoints(t, policy)
			s.Standing = test.standing
			p, err := PlanGateway(s)
			require.NoError(t, err)
			require.Equal(t, test.cables, len(p.State) > 0)
			r := report.Gateway(s, p, role.Outcome{Now: s.Now})
			require.ElementsMatch(t, test.writes, named(t, append(r.Apply, r.Status...)))
			require.Empty(t, r.Delete)
		})
	}
}

// The speaker writes the status of the Submariner where it is not as upstream's tools expect it,
// for example wiped, and only then. What join found stays.
func TestSubmarinerStatus(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*v1alpha1.Submariner)
		writes bool
	}{
		"complete":  {func(*v1alpha1.Submariner) {}, false},
		"wiped":     {func(sub *v1alpha1.Submariner) { sub.Status = v1alpha1.SubmarinerStatus{} }, true},
		"globalnet": {func(sub *v1alpha1.Submariner) { sub.Spec.GlobalCIDR = "242.0.0.0/16" }, true},
		"NAT":       {func(sub *v1alpha1.Submariner) { sub.Spec.NatEnabled = true }, true},
		"version":   {func(sub *v1alpha1.Submariner) { sub.Spec.Version = "v2" }, true},
		"deleted": {func(sub *v1alpha1.Submariner) {
			sub.Status = v1alpha1.SubmarinerStatus{}
			sub.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := withoutEndpoints(t)
			s.Standing = role.Standing{Active: true, Speaker: true, Gateways: []string{"gw"}}
			sub := s.Submariner()
			sub.Status = v1alpha1.SubmarinerStatus{
				ClusterID:     "east",
				ClusterCIDR:   sub.Spec.ClusterCIDR,
				ServiceCIDR:   sub.Spec.ServiceCIDR,
				NetworkPlugin: "flannel",
				Version:       sub.Spec.Version,
			}
			test.change(sub)
			p, err := PlanGateway(s)
			require.NoError(t, err)
			r := report.Gateway(s, p, role.Outcome{Now: s.Now})
			if !test.writes {
				require.Empty(t, r.Status)
				return
			}
			require.Len(t, r.Status, 1)
			require.Equal(t, v1alpha1.SubmarinerStatus{
				ClusterID:   "east",
				ClusterCIDR: sub.Spec.ClusterCIDR,
				ServiceCIDR: sub.Spec.ServiceCIDR,
				GlobalCIDR:  sub.Spec.GlobalCIDR,
				NatEnabled:  sub.Spec.NatEnabled,
				Version:     sub.Spec.Version,
			}, r.Status[0].(*v1alpha1.Submariner).Status)
		})
	}
}

// The Endpoint of a sibling stays for as long as the sibling is there. It is deleted by
// the speaker, and by nobody else.
func TestSiblingsEndpoint(t *testing.T) {
	sibling := ownEndpoint("worker", "10-89-1-12")
	former := ownEndpoint("gw", "10-89-1-99") // at another address of this node
	own := ownEndpoint("gw", "10-89-1-11")
	both := []string{"gw", "worker"}
	label := func(value string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Labels = map[string]string{submarinerv1.GatewayNodeLabel: value} }
	}
	for _, test := range []struct {
		name     string
		standing role.Standing
		worker   func(*corev1.Node) // changes the sibling's node
		deletes  []string
	}{
		{
			"both are active",
			role.Standing{Active: true, Speaker: true, Gateways: both},
			label("true"),
			[]string{"Endpoint " + former.Name},
		},
		{
			"the sibling is gone",
			role.Standing{Active: true, Speaker: true, Gateways: []string{"gw"}},
			label("true"),
			[]string{"Endpoint " + former.Name, "Endpoint " + sibling.Name},
		},
		{
			"the sibling's node is no gateway node any more",
			role.Standing{Active: true, Speaker: true, Gateways: both},
			label("false"),
			[]string{"Endpoint " + former.Name, "Endpoint " + sibling.Name},
		},
		{
			"the sibling's node is gone",
			role.Standing{Active: true, Speaker: true, Gateways: both},
			func(n *corev1.Node) { n.Name = "another" },
			[]string{"Endpoint " + former.Name, "Endpoint " + sibling.Name},
		},
		{
			"the speaker no longer carries traffic",
			role.Standing{Speaker: true, Gateways: []string{"worker"}},
			label("true"),
			[]string{"Endpoint " + former.Name, "Endpoint " + own.Name},
		},
		{
			"another gateway speaks",
			role.Standing{Active: true, Gateways: []string{"gw"}},
			label("false"),
			[]string{"Endpoint " + former.Name},
		},
		{
			"standby",
			role.Standing{Active: true, Drain: cable.Standby},
			label("true"),
			[]string{"Endpoint " + former.Name},
		},
		{"neither", role.Standing{}, label("true"), nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := withoutEndpoints(t, sibling, former, own)
			test.worker(role.Find[*corev1.Node](s, "worker"))
			s.Standing = test.standing
			p, err := PlanGateway(s)
			require.NoError(t, err)
			require.ElementsMatch(t, test.deletes, named(t, report.Gateway(s, p, role.Outcome{Now: s.Now}).Delete))
		})
	}
}

// The speaker announces that a gateway is a standby if it has replaced it, and changes nothing else
// of its Endpoint. It deletes the Endpoint if the gateway is lost.
func TestEndpointOfAReplacedGateway(t *testing.T) {
	sibling := ownEndpoint("worker", "10-89-1-12")
	sibling.UID = "1"
	sibling.Labels = map[string]string{"theirs": "x"}
	sibling.Spec.BackendConfig = map[string]string{"vxlan-udp-port": "4500"}
	for _, gateway := range []string{"true", "false"} {
		s := withoutEndpoints(t, sibling, ownEndpoint("gw", "10-89-1-11"))
		role.Find[*corev1.Node](s, "worker").Labels = map[string]string{submarinerv1.GatewayNodeLabel: gateway}
		s.Standing = role.Standing{
			Active:   true,
			Speaker:  true,
			Gateways: []string{"gw", "worker"},
			Replaced: []string{"worker"},
		}
		p, err := PlanGateway(s)
		require.NoError(t, err)
		r := report.Gateway(s, p, role.Outcome{Now: s.Now})
		if gateway == "false" {
			require.NotContains(t, named(t, r.Apply), "Endpoint "+sibling.Name)
			require.Contains(t, r.Delete, role.Object(sibling))
			continue
		}
		require.Empty(t, r.Delete)
		want := ownEndpoint("worker", "10-89-1-12")
		want.UID = "1"
		want.Spec.BackendConfig = map[string]string{
			"vxlan-udp-port":          "4500",
			submarinerv1.BackendDrain: submarinerv1.Standby,
		}
		require.Contains(t, r.Apply, role.Object(want))
		require.NotContains(t, sibling.Spec.BackendConfig, submarinerv1.BackendDrain, "it belongs to the cache")
	}
}

// The Endpoint of a gateway stays for seconds after its node has lost its label: the node's own
// pods use its cables until its route agent has found other ways. It announces a standby meanwhile,
// so that other clusters send no packets to it, and that it leaves, so that they do not look for a
// fault.
func TestEndpointWithoutLabel(t *testing.T) {
	for _, test := range []struct {
		name     string
		drain    string
		reported time.Duration // how long before now
		deleted  bool
	}{
		{"a standby", submarinerv1.Standby, 9 * time.Second, false},
		{"drained", submarinerv1.Drained, 9 * time.Second, false},
		{"draining", submarinerv1.Draining, 9 * time.Second, false},
		{"in service", "", 9 * time.Second, false},
		{"a standby, seconds later", submarinerv1.Standby, 10 * time.Second, true},
		{"in service, seconds later", "", 10 * time.Second, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			sibling := ownEndpoint("worker", "10-89-1-12")
			sibling.Spec.BackendConfig = map[string]string{submarinerv1.BackendDrain: test.drain}
			g := &submarinerv1.Gateway{
				ObjectMeta: metav1.ObjectMeta{Name: "worker", Namespace: submarinerv1.OperatorNamespace},
			}
			s := withoutEndpoints(t, sibling, g, ownEndpoint("gw", "10-89-1-11"))
			g.SetReportedAt(s.Now.Add(time.Hour)) // its clock is wrong
			s.ReportTimes = role.ReportTimes{"worker": {At: s.Now.Add(-test.reported)}}
			s.Standing = role.Standing{Active: true, Speaker: true, Gateways: []string{"gw"}}
			p, err := PlanGateway(s)
			require.NoError(t, err)
			r := report.Gateway(s, p, role.Outcome{Now: s.Now})
			require.Equal(t, test.deleted, slices.Contains(r.Delete, role.Object(sibling)))
			require.Equal(t, !test.deleted, slices.Contains(named(t, r.Apply), "Endpoint "+sibling.Name),
				"it announces that it leaves")
			if !test.deleted {
				left := members.AsStandby(sibling)
				if test.drain == submarinerv1.Drained {
					left.Spec.BackendConfig[submarinerv1.BackendDrain] = test.drain
				}
				left.Spec.BackendConfig[submarinerv1.BackendLeaving] = "true"
				require.Contains(t, r.Apply, role.Object(left))
				sibling.Spec = left.Spec
				require.NotContains(t, named(t, report.Gateway(s, p, role.Outcome{Now: s.Now}).Apply),
					"Endpoint "+sibling.Name, "once")
			}

			role.Find[*corev1.Node](s, "worker").Name = "another"
			p, err = PlanGateway(s)
			require.NoError(t, err)
			require.Contains(t, report.Gateway(s, p, role.Outcome{Now: s.Now}).Delete, role.Object(sibling),
				"its node is gone")
		})
	}
}

// The speaker deletes the Gateway of a gateway that does not report any more together with its
// Endpoint, and not before: the next agent of the node goes on from it.
func TestGatewayOfADeadAgent(t *testing.T) {
	both := role.Standing{Active: true, Speaker: true, Gateways: []string{"gw", "worker"}}
	endpoint := ownEndpoint("worker", "10-89-1-12")
	gone := []string{"Endpoint " + endpoint.Name, "Gateway worker"}
	for _, test := range []struct {
		name     string
		standing role.Standing
		reported time.Duration // how long before now
		change   func(*corev1.Node)
		deletes  []string
	}{
		{"its kernel may forward", both, time.Minute, nil, nil},
		{"it is lost", role.Standing{Active: true, Speaker: true, Gateways: []string{"gw"}}, time.Minute, nil, gone},
		{"its node is no gateway node any more", both, 15 * time.Second, func(n *corev1.Node) { n.Labels = nil }, gone},
		{"its node is gone", both, 15 * time.Second, func(n *corev1.Node) { n.Name = "another" }, gone},
		{"its node has just gone", both, 14 * time.Second, func(n *corev1.Node) { n.Name = "another" }, gone[:1]},
		{
			"another gateway speaks",
			role.Standing{Active: true},
			time.Minute,
			func(n *corev1.Node) { n.Name = "another" },
			nil,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := &submarinerv1.Gateway{
				ObjectMeta: metav1.ObjectMeta{Name: "worker", Namespace: submarinerv1.OperatorNamespace},
			}
			s := withoutEndpoints(t, endpoint, g, ownEndpoint("gw", "10-89-1-11"))
			g.SetReportedAt(s.Now.Add(time.Hour)) // its clock is wrong
			s.ReportTimes = role.ReportTimes{"worker": {At: s.Now.Add(-test.reported)}}
			n := role.Find[*corev1.Node](s, "worker")
			n.Labels = map[string]string{submarinerv1.GatewayNodeLabel: "true"}
			if test.change != nil {
				test.change(n)
			}
			s.Standing = test.standing
			p, err := PlanGateway(s)
			require.NoError(t, err)
			require.ElementsMatch(t, test.deletes, named(t, report.Gateway(s, p, role.Outcome{Now: s.Now}).Delete))
			if n.Name == "worker" {
				p, err = PlanGateway(withoutEndpoint(s, "worker"))
				require.NoError(t, err)
				require.Contains(t, named(t, report.Gateway(s, p, role.Outcome{Now: s.Now}).Delete), "Gateway worker",
					"it has no Endpoint")
			}
		})
	}
}

// A node that takes the place of another one, under another name and at the same address,
// takes over its Endpoint. The Endpoint is changed and not deleted: without it, the other
// clusters would end their cables.
func TestEndpointOfAReplacedNode(t *testing.T) {
	replaced := ownEndpoint("gw-old", "10-89-1-11")
	s := withoutEndpoints(t, replaced)
	for _, leaving := range []bool{false, true} {
		if leaving {
			role.List[*v1alpha1.Submariner](s)[0].DeletionTimestamp = new(metav1.NewTime(s.Now))
		}
		p, err := PlanGateway(s)
		require.NoError(t, err)
		r := report.Gateway(s, p, role.Outcome{Now: s.Now})
		endpoint := "Endpoint " + replaced.Name
		if leaving {
			require.Contains(t, named(t, r.Delete), endpoint)
			require.NotContains(t, named(t, r.Apply), endpoint)
		} else {
			require.Empty(t, r.Delete)
			require.Contains(t, named(t, r.Apply), endpoint)
		}
	}
}

func ownEndpoint(node, address string) *submarinerv1.Endpoint {
	cable := "submariner-cable-east-" + address
	return &submarinerv1.Endpoint{
		ObjectMeta: metav1.ObjectMeta{Name: "east-" + cable, Namespace: submarinerv1.OperatorNamespace},
		Spec:       submarinerv1.EndpointSpec{ClusterID: "east", CableName: cable, Hostname: node},
	}
}

// withoutEndpoints returns the snapshot of gateway gw of scenario two-clusters, in which
// this cluster has not published anything, with more objects.
func withoutEndpoints(t *testing.T, more ...client.Object) role.Snapshot {
	t.Helper()
	objs := more
	for _, o := range kubetest.Scenario(t, "../../testdata/scenarios/two-clusters.txtar") {
		if e, ok := o.(*submarinerv1.Endpoint); ok && !submarinerv1.IsCopy(e) {
			continue
		}
		objs = append(objs, o)
	}
	s := snapshotOf(objs...)
	s.Now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, g := range role.List[*submarinerv1.Gateway](s) {
		g.SetReportedAt(s.Now)
	}
	return s
}

// named returns the kinds and names of objects.
func named(t *testing.T, objs []role.Object) []string {
	t.Helper()
	var out []string
	for _, o := range objs {
		gvks, _, err := kubetest.Scheme(t).ObjectKinds(o)
		require.NoError(t, err)
		out = append(out, gvks[0].Kind+" "+o.GetName())
	}
	return out
}
