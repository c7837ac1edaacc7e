package agent

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable/vxlan"
)

// A change of a pair's cable, and its first cable, that have not been answered for 30 s are
// reported in a condition, in one Event, and in a metric, until they are.
func TestStuckIsReported(t *testing.T) {
	const metric = `submariner_stuck_cable_changes role="gateway" `
	for name, test := range map[string]struct {
		first bool // the pair has no cable before
		probe string
		want  string
	}{
		"a change": {
			false,
			westCable + " over " + northDevice,
			"should be vxlan, which cable policy lab specifies, since ",
		},
		"the first cable": {
			true,
			westCable + " over vxlan-tunnel",
			"no traffic is sent until it does, as the other end may use another one. Likely cause: a firewall",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := gateway(t)
			events := &recorder{}
			reg := prometheus.NewRegistry()
			w.events = events
			w.meters = newMeters("gateway", reg)
			w.silent = test.first
			w.run(t)
			if !test.first {
				w.answers(t, westCable)
				w.silent = true
				w.policy(t, vxlan.Name, "vxlanID: 2000")
				w.run(t)
			}
			noAnswer := func() (out []recorded) {
				for _, e := range events.got {
					if e.reason == "Warning NoAnswer" {
						out = append(out, e)
					}
				}
				return out
			}
			condition := func() *metav1.Condition {
				return meta.FindStatusCondition(get(t, w, &submarinerv1.Gateway{}, "gw").Status.Conditions,
					role.ConditionCablesChanged)
			}
			require.Nil(t, condition())
			require.Empty(t, noAnswer())
			require.Contains(t, gathered(t, reg), metric+"0")

			w.age(submarinerv1.StuckAfter)
			for range 3 {
				w.run(t)
			}
			require.Equal(t, metav1.ConditionFalse, condition().Status)
			require.Contains(t, condition().Message, test.want)
			require.Len(t, noAnswer(), 1)
			require.Equal(t, recorded{"gw", "Warning NoAnswer", condition().Message}, noAnswer()[0])
			require.Contains(t, gathered(t, reg), metric+"1")

			w.answers(t, test.probe)
			w.run(t)
			w.answers(t, westCable)
			w.run(t)
			require.Nil(t, condition())
			require.Contains(t, gathered(t, reg), metric+"0")
		})
	}
}

// age has the changes of cables that are under way begin earlier.
func (w *world) age(by time.Duration) {
	for name, u := range w.memory.Using {
		if u.Change != nil {
			turn := *u.Change
			turn.Since = turn.Since.Add(-by)
			u.Change = &turn
			w.memory.Using[name] = u
		}
	}
	for name, turn := range w.memory.First {
		turn.Since = turn.Since.Add(-by)
		w.memory.First[name] = turn
	}
}
