package mesh_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "subctl/agent/mesh"
	"subctl/agent/mesh/members"
	"subctl/agent/mesh/report"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
	"subctl/internal/kubetest"
)

// annotated returns a snapshot of the active gateway gw, whose node has an annotation.
func annotated(t *testing.T, annotations map[string]string) role.Snapshot {
	t.Helper()
	s := withoutEndpoints(t)
	s.Standing = role.Standing{Active: true}
	role.Find[*corev1.Node](s, "gw").Annotations = annotations
	return s
}

// reported returns what a gateway reports and publishes.
func reported(t *testing.T, s role.Snapshot) (*submarinerv1.Gateway, *submarinerv1.Endpoint) {
	t.Helper()
	p, err := PlanGateway(s)
	require.NoError(t, err)
	var gw *submarinerv1.Gateway
	var ep *submarinerv1.Endpoint
	for _, o := range report.Gateway(s, p, role.Outcome{Now: s.Now}).Apply {
		switch o := o.(type) {
		case *submarinerv1.Gateway:
			gw = o
		case *submarinerv1.Endpoint:
			ep = o
		}
	}
	return gw, ep
}

func isGateway(o role.Object) bool {
	_, is := o.(*submarinerv1.Gateway)
	return is
}

// The annotations of a node, and what other clusters and people get to know. A mistake is reported,
// and the default applies.
func TestShare(t *testing.T) {
	const weight, drain = submarinerv1.WeightAnnotation, submarinerv1.DrainAnnotation
	for name, test := range map[string]struct {
		annotations map[string]string
		weight      int
		published   map[string]string
		mistakes    []string
	}{
		"none":        {nil, 100, nil, nil},
		"the default": {map[string]string{weight: "100"}, 100, nil, nil},
		"a weight":    {map[string]string{weight: "7"}, 7, map[string]string{"gateway-weight": "7"}, nil},
		"drained": {
			map[string]string{weight: "7", drain: "5m"},
			7,
			map[string]string{"gateway-weight": "7", "gateway-drain": "draining"},
			nil,
		},
		"weight 0": {map[string]string{weight: "0"}, 0, map[string]string{"gateway-drain": "draining"}, nil},
		"too heavy": {
			map[string]string{weight: "101"},
			100,
			nil,
			[]string{
				`node gw: annotation gateway.submariner.io/weight is "101": it must be a whole number from 1 to 100, or 0 to drain the gateway; until then, its weight is the default, 100`,
			},
		},
		"negative":  {map[string]string{weight: "-1"}, 100, nil, []string{`"-1"`}},
		"no number": {map[string]string{weight: "heavy\n"}, 100, nil, []string{`"heavy\n"`}},
		"empty":     {map[string]string{weight: ""}, 100, nil, []string{`is ""`}},
		"all mistakes": {
			map[string]string{weight: "x", drain: "soon"},
			100,
			map[string]string{"gateway-drain": "draining"},
			[]string{
				`is "x"`,
				`node gw: annotation gateway.submariner.io/drain is "soon": it must be the time that flows are given to end, from 0s to 24h0m0s, such as 5m0s; until then, it is 5m0s`,
			},
		},
		"too long": {
			map[string]string{drain: "25h"},
			100,
			map[string]string{"gateway-drain": "draining"},
			[]string{`"25h"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			gw, ep := reported(t, annotated(t, test.annotations))
			require.Equal(t, test.weight, *gw.Status.Weight)
			for _, key := range []string{submarinerv1.BackendWeight, submarinerv1.BackendDrain} {
				require.Equal(t, test.published[key], ep.Spec.BackendConfig[key], key)
			}
			g, err := cable.Parse(ep.Spec)
			require.NoError(t, err, "the other clusters accept it")
			require.Equal(t, test.published[submarinerv1.BackendDrain], g.Drain.String())
			c := meta.FindStatusCondition(gw.Status.Conditions, report.ConditionShare)
			require.Equal(t, len(test.mistakes) > 0, c != nil)
			for _, m := range test.mistakes {
				require.Contains(t, c.Message, m)
				require.True(t, role.Wrong(*c))
			}
		})
	}
}

// A gateway reports its flows, and the first of them, also while it is in service; who drains it
// wants to know which these are. The count alone must not make it write more often.
func TestFlowsReported(t *testing.T) {
	for _, annotations := range []map[string]string{nil, {submarinerv1.DrainAnnotation: "5m"}} {
		s := annotated(t, annotations)
		s.Flows = role.Flows{Known: true, Count: 2, Some: []string{"tcp 10.1.0.5:40000 → 10.2.0.9:80"}, At: s.Now}
		gw, _ := reported(t, s)
		require.Equal(t, int64(2), *gw.Status.Flows)
		require.Equal(t, s.Flows.Some, gw.Status.SomeFlows)
		s.Flows = role.Flows{}
		before, _ := reported(t, s)
		require.Nil(t, before.Status.Flows)
		s = with(s, before)
		s.Flows = role.Flows{Known: true, Count: 3, Some: gw.Status.SomeFlows, At: s.Now}
		p, err := PlanGateway(s)
		require.NoError(t, err)
		r := report.Gateway(s, p, role.Outcome{Now: s.Now})
		require.False(t, slices.ContainsFunc(r.Apply, isGateway))
		require.Empty(t, r.Paced)
	}
}

// A gateway is drained when its last flow has ended, or their time is over, and not before other
// nodes and clusters know. It stays drained until it is in service again, whatever becomes of its
// agent.
func TestDraining(t *testing.T) {
	asked := map[string]string{submarinerv1.DrainAnnotation: "1m"}
	since := metav1.NewTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	for name, test := range map[string]struct {
		annotations map[string]string
		after       time.Duration
		was         string // of the last report; "-": there is none
		flows       role.Flows
		want        string
	}{
		"in service": {nil, time.Second, "drained", role.Flows{}, ""},
		"just begun": {asked, 0, "-", role.Flows{Known: true}, "draining"},
		"no flows, but not known": {
			asked,
			5 * time.Second,
			"draining",
			role.Flows{Known: true, At: since.Add(5 * time.Second)},
			"draining",
		},
		"no flows long ago": {
			asked,
			15 * time.Second,
			"draining",
			role.Flows{Known: true, At: since.Add(9 * time.Second)},
			"draining",
		},
		"no flows": {
			asked,
			15 * time.Second,
			"draining",
			role.Flows{Known: true, At: since.Add(14 * time.Second)},
			"drained",
		},
		"one flow": {
			asked,
			59 * time.Second,
			"draining",
			role.Flows{Known: true, Count: 1, At: since.Add(58 * time.Second)},
			"draining",
		},
		"not counted": {asked, 59 * time.Second, "draining", role.Flows{}, "draining"},
		"the time is over": {
			asked,
			time.Minute,
			"draining",
			role.Flows{Known: true, Count: 1, At: since.Add(58 * time.Second)},
			"drained",
		},
		"new flows afterwards": {
			asked,
			30 * time.Second,
			"drained",
			role.Flows{Known: true, Count: 3, At: since.Add(29 * time.Second)},
			"drained",
		},
		"no time at all": {
			map[string]string{submarinerv1.DrainAnnotation: "0s"},
			time.Second,
			"draining",
			role.Flows{},
			"drained",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := annotated(t, test.annotations)
			s.Now = since.Add(test.after)
			s.Flows = test.flows
			if test.was != "-" {
				old := &submarinerv1.Gateway{
					ObjectMeta: metav1.ObjectMeta{Name: "gw", Namespace: submarinerv1.OperatorNamespace},
				}
				old.Status.Drain = test.was
				old.Status.DrainingSince = &since
				s = with(s, old)
				s.Memory = RecallGateway("gw", false, []*submarinerv1.Gateway{old}, s.Now)
			}
			gw, ep := reported(t, s)
			require.Equal(t, test.want, gw.Status.Drain)
			require.Equal(t, test.want, ep.Spec.BackendConfig[submarinerv1.BackendDrain])
			if test.want != "" {
				require.Equal(t, since.Unix(), gw.Status.DrainingSince.Unix())
				require.NotEmpty(t, planOf(t, s), "it keeps its cables")
			} else {
				require.Nil(t, gw.Status.DrainingSince)
			}
		})
	}
}

// A drain ends after the grace period also if nothing can be reported.
func TestDrainWithoutReports(t *testing.T) {
	s := annotated(t, map[string]string{submarinerv1.DrainAnnotation: "1m"})
	start := s.Now
	for _, step := range []struct {
		after time.Duration
		want  string
	}{
		{0, submarinerv1.Draining},
		{59 * time.Second, submarinerv1.Draining},
		{time.Minute, submarinerv1.Drained},
		{time.Hour, submarinerv1.Drained},
	} {
		s.Now = start.Add(step.after)
		gw, _ := reported(t, s)
		require.Equal(t, step.want, gw.Status.Drain, step.after)
		p, err := PlanGateway(s)
		require.NoError(t, err)
		s.Memory = Remember(s.Memory, p, role.Outcome{Now: s.Now})
	}
	role.Find[*corev1.Node](s, "gw").Annotations = nil
	p, err := PlanGateway(s)
	require.NoError(t, err)
	s.Memory = Remember(s.Memory, p, role.Outcome{Now: s.Now})
	require.Zero(t, s.Memory.DrainingSince)
}

// What a report states of a drain counts for the first plan of an agent only: if it was in service
// since, and could not report that, its next drain is a new one.
func TestDrainAfterAnOldReport(t *testing.T) {
	s := annotated(t, map[string]string{submarinerv1.DrainAnnotation: "1m"})
	before := s.Now.Add(-time.Hour)
	old := &submarinerv1.Gateway{ObjectMeta: metav1.ObjectMeta{Name: "gw", Namespace: submarinerv1.OperatorNamespace}}
	old.Status.Drain = submarinerv1.Drained
	old.Status.DrainingSince = &metav1.Time{Time: before}
	s = with(s, old)
	s.Memory = RecallGateway("gw", false, []*submarinerv1.Gateway{old}, s.Now)
	n := role.Find[*corev1.Node](s, "gw")
	asked := n.Annotations
	start := s.Now
	for _, step := range []struct {
		annotations map[string]string
		want        string
		since       time.Time
	}{
		{asked, submarinerv1.Drained, before},
		{nil, "", time.Time{}},
		{asked, submarinerv1.Draining, start.Add(2 * time.Second)},
		{asked, submarinerv1.Draining, start.Add(2 * time.Second)},
	} {
		n.Annotations = step.annotations
		gw, _ := reported(t, s)
		require.Equal(t, step.want, gw.Status.Drain)
		p, err := PlanGateway(s)
		require.NoError(t, err)
		s.Memory = Remember(s.Memory, p, role.Outcome{Now: s.Now})
		require.True(t, step.since.Equal(s.Memory.DrainingSince))
		s.Now = s.Now.Add(time.Second)
	}
}

// A gateway that is to be drained when its node has booted is drained at once, whatever it has
// reported before, as it carries nothing. It has flows when it is drained after it was in service.
func TestDrainOfABareNode(t *testing.T) {
	drained := map[string]string{submarinerv1.WeightAnnotation: "0"}
	draining := &submarinerv1.Gateway{
		ObjectMeta: metav1.ObjectMeta{Name: "gw", Namespace: submarinerv1.OperatorNamespace},
	}
	draining.Status.Drain = submarinerv1.Draining
	for _, old := range []*submarinerv1.Gateway{nil, draining} {
		s := annotated(t, nil)
		if old != nil {
			old.Status.DrainingSince = new(metav1.NewTime(s.Now.Add(-time.Second)))
			s = with(s, old)
		}
		s.Flows = role.Flows{Known: true, Count: 1, At: s.Now}
		s.Memory = RecallGateway("gw", true, role.List[*submarinerv1.Gateway](s), s.Now)
		for _, step := range []struct {
			annotations map[string]string
			want        string
		}{{drained, submarinerv1.Drained}, {nil, ""}, {drained, submarinerv1.Draining}} {
			role.Find[*corev1.Node](s, "gw").Annotations = step.annotations
			for range 2 { // the second plan need not have read the report of the first
				gw, ep := reported(t, s)
				require.Equal(t, step.want, gw.Status.Drain)
				require.Equal(t, step.want, ep.Spec.BackendConfig[submarinerv1.BackendDrain])
				p, err := PlanGateway(s)
				require.NoError(t, err)
				s.Memory.FreshBoot = p.FreshBoot
			}
		}
	}
}

// An agent whose predecessor has ended before it has reported anything finds a node that holds a
// gateway, and no report.
func TestHoldsNoneOfItsReport(t *testing.T) {
	s := role.Snapshot{Node: "gw", BootID: "two"}
	report := func(node, boot string) *submarinerv1.Gateway {
		return &submarinerv1.Gateway{
			ObjectMeta: metav1.ObjectMeta{Name: node},
			Status:     submarinerv1.GatewayStatus{BootID: boot},
		}
	}
	other := report("gw2", "two")
	require.True(t, HoldsNoneOf(s, []*submarinerv1.Gateway{other}))
	require.True(t, HoldsNoneOf(s, []*submarinerv1.Gateway{report("gw", "one"), other}))
	require.False(t, HoldsNoneOf(s, []*submarinerv1.Gateway{report("gw", "two"), other}))
	require.False(t, HoldsNoneOf(s, []*submarinerv1.Gateway{report("gw", ""), other}))
}

func planOf(t *testing.T, s role.Snapshot) string {
	t.Helper()
	p, err := PlanGateway(s)
	require.NoError(t, err)
	return p.State.String()
}

// with returns the snapshot with one object more, which replaces its namesake.
func with(s role.Snapshot, o role.Object) role.Snapshot {
	var objs []role.Object
	for _, other := range all(s) {
		if _, gw := other.(*submarinerv1.Gateway); !gw || other.GetName() != o.GetName() {
			objs = append(objs, other)
		}
	}
	return as(role.NewSnapshot(s.Node, append(objs, o)...), s)
}

// The nodes of a cluster follow the annotation of its node at once, and a gateway that says it is
// drained only while it is to be.
func TestShareOfOwnGateways(t *testing.T) {
	for name, test := range map[string]struct {
		asked     bool
		announced string
		want      cable.Drain
	}{
		"in service":               {false, "", cable.InService},
		"draining":                 {true, "", cable.Draining},
		"drained":                  {true, "drained", cable.Drained},
		"is back":                  {false, "drained", cable.InService},
		"says more than it should": {true, "gone", cable.Draining},
		"was a standby":            {false, "standby", cable.Standby}, // and has not announced yet that it is none
	} {
		t.Run(name, func(t *testing.T) {
			s := snapshotOf(kubetest.Scenario(t, "../../testdata/scenarios/two-active-gateways.txtar")...)
			if n := role.Find[*corev1.Node](s, "gw2"); test.asked {
				n.Annotations = map[string]string{submarinerv1.DrainAnnotation: "5m"}
			}
			for _, e := range role.List[*submarinerv1.Endpoint](s) {
				if e.Spec.Hostname == "gw2" && test.announced != "" {
					e.Spec.BackendConfig = map[string]string{submarinerv1.BackendDrain: test.announced}
				}
			}
			m, err := members.Read(s)
			require.NoError(t, err)
			require.Equal(t, "gw2", m.Gateways[1].Name)
			require.Equal(t, test.want, m.Gateways[1].Drain)
			require.Equal(t, cable.InService, m.Gateways[0].Drain)
		})
	}
}

// A gateway that is about to become a standby leaves as one that is drained does: it announces it,
// and the nodes of its cluster follow, although nothing is specified on its node. Its state is then
// passive, and it is not about to leave.
func TestDrainOfAFutureStandby(t *testing.T) {
	for drain, status := range map[cable.Drain]string{cable.Draining: "active draining", cable.Standby: "passive "} {
		s := withoutEndpoints(t)
		s.Standing = role.Standing{Active: true, Drain: drain}
		gw, ep := reported(t, s)
		require.Equal(t, status, string(gw.Status.HAStatus)+" "+gw.Status.Drain)
		require.Equal(t, drain == cable.Draining, gw.Status.DrainingSince != nil)
		require.Equal(t, drain.String(), ep.Spec.BackendConfig[submarinerv1.BackendDrain])

		other := ownEndpoint("worker", "10-89-1-12")
		other.Spec.BackendConfig = map[string]string{submarinerv1.BackendDrain: drain.String()}
		for _, multi := range []bool{false, true} {
			s := withoutEndpoints(t, ownEndpoint("gw", "10-89-1-11"), other)
			role.List[*v1alpha1.Submariner](s)[0].Spec.MultiActiveGatewayEnabled = multi
			role.Find[*corev1.Node](s, "worker").Labels = map[string]string{submarinerv1.GatewayNodeLabel: "true"}
			m, err := members.Read(s)
			require.NoError(t, err)
			require.Len(t, m.Gateways, 2)
			want := drain
			if multi && drain == cable.Draining { // it has been put back in service, and has not announced it yet
				want = cable.InService
			}
			require.Equal(t, want, m.Siblings()[0].Drain)
		}
	}
}
