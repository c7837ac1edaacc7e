package mesh_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "subctl/agent/mesh"
	"subctl/agent/mesh/report"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
	"subctl/internal/kubetest"
)

// Each connection tells whether packets may take it, and why not.
func TestMembers(t *testing.T) {
	const first, second = "submariner-cable-west-10-89-2-11", "submariner-cable-west-10-89-2-12"
	base := func() role.Snapshot {
		s := snapshotOf(kubetest.Scenario(t, "../../testdata/scenarios/two-active-gateways.txtar")...)
		s.Facts.ResilientGroups = true
		s.Now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
		s.Health = answering(s)
		p, err := PlanGateway(s)
		require.NoError(t, err)
		s.Memory.Using = p.Using // the cables have answered before
		return s
	}
	announce := func(s role.Snapshot, drain string) {
		for _, e := range role.List[*submarinerv1.Endpoint](s) {
			if e.Spec.CableName == first {
				e.Spec.BackendConfig = map[string]string{submarinerv1.BackendDrain: drain}
			}
		}
	}
	down := role.Health{Status: submarinerv1.ConnectionError}
	probe := role.ProbeName(first, "vxlan-tunnel")
	for name, test := range map[string]struct {
		change func(*role.Snapshot)
		broken error
		want   bool
		reason string
	}{
		"in service": {func(*role.Snapshot) {}, nil, true, ""},
		"draining":   {func(s *role.Snapshot) { announce(*s, "draining") }, nil, true, "draining"},
		"drained":    {func(s *role.Snapshot) { announce(*s, "drained") }, nil, false, "drained"},
		"draining, and no resilient groups": {
			func(s *role.Snapshot) { announce(*s, "draining"); s.Facts.ResilientGroups = false },
			nil,
			false,
			"draining",
		},
		"down": {
			func(s *role.Snapshot) { s.Health[probe] = down },
			nil,
			false,
			"down since 2026-03-01T12:00:00Z",
		},
		"still down": {func(s *role.Snapshot) {
			s.Health[probe] = down
			old := &submarinerv1.Gateway{
				ObjectMeta: metav1.ObjectMeta{Name: "gw", Namespace: submarinerv1.OperatorNamespace},
			}
			old.Status.Connections = []submarinerv1.Connection{
				{
					MemberReason: "down since 2026-02-01T12:00:00Z",
					Endpoint:     submarinerv1.EndpointSpec{CableName: first},
				},
			}
			*s = with(*s, old)
		}, nil, false, "down since 2026-02-01T12:00:00Z"},
		"all are down": {func(s *role.Snapshot) {
			s.Health[probe] = down
			s.Health[role.ProbeName(second, "vxlan-tunnel")] = down
		}, nil, true, "down, but no other gateway answers"},
		"no answer": {
			func(s *role.Snapshot) { delete(s.Health, probe); delete(s.Memory.Using, first) },
			nil,
			false,
			"no answer yet",
		},
		"standby": {func(s *role.Snapshot) { announce(*s, "standby") }, nil, false, "standby"},
		"this one is a standby": {
			func(s *role.Snapshot) { s.Standing.Drain = cable.Standby },
			nil,
			true,
			"this gateway is a standby",
		},
		"cannot be set up": {
			func(*role.Snapshot) {},
			errors.New("the port is in use"),
			false,
			"its cable cannot be set up",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := base()
			test.change(&s)
			p, err := PlanGateway(s)
			require.NoError(t, err)
			o := role.Outcome{Now: s.Now, Health: s.Health, Broken: map[string]error{}}
			if test.broken != nil {
				o.Broken[first] = test.broken
			}
			for _, c := range report.Connections(p, o) {
				if c.Endpoint.CableName == first {
					require.NotNil(t, c.Member)
					require.Equal(t, test.want, *c.Member, c.MemberReason)
					require.Equal(t, test.reason, c.MemberReason)
				} else if test.want == false {
					require.True(t, *c.Member, c.MemberReason)
				}
			}
		})
	}
}
