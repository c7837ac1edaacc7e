package cable

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/dataplane"
)

// Which gateways a group has, and with which weights.
func TestChoose(t *testing.T) {
	for _, test := range []struct {
		name  string
		ways  []way
		keeps bool
		want  map[uint32]int
	}{
		{"one", []way{{hop: 1}}, true, map[uint32]int{1: 1}},
		{"equal weights", []way{{hop: 1, weight: 40}, {hop: 2, weight: 40}}, true, map[uint32]int{1: 1, 2: 1}},
		{"the default is 100", []way{{hop: 1}, {hop: 2, weight: 50}}, true, map[uint32]int{1: 2, 2: 1}},
		{"no common divisor", []way{{hop: 1, weight: 100}, {hop: 2, weight: 33}}, true, map[uint32]int{1: 100, 2: 33}},
		{"one is down", []way{{hop: 1, down: true}, {hop: 2, weight: 10}}, true, map[uint32]int{2: 1}},
		{"all are down", []way{{hop: 1, down: true}, {hop: 2, down: true}}, true, map[uint32]int{1: 1, 2: 1}},
		{
			"draining",
			[]way{{hop: 1, drain: Draining}, {hop: 2, weight: 10}, {hop: 3, weight: 20}},
			true,
			map[uint32]int{1: 1, 2: 128, 3: 256},
		},
		{"draining in a plain group", []way{{hop: 1, drain: Draining}, {hop: 2}}, false, map[uint32]int{2: 1}},
		{"drained", []way{{hop: 1, drain: Drained}, {hop: 2}}, true, map[uint32]int{2: 1}},
		{"the other is down", []way{{hop: 1, drain: Drained}, {hop: 2, down: true}}, true, map[uint32]int{1: 1}},
		{"a standby", []way{{hop: 1, drain: Standby}, {hop: 2}}, true, map[uint32]int{2: 1}},
		{"a standby takes over", []way{{hop: 1, drain: Standby}, {hop: 2, down: true}}, true, map[uint32]int{1: 1}},
		{
			"draining before a standby",
			[]way{{hop: 1, drain: Standby}, {hop: 2, drain: Draining}},
			true,
			map[uint32]int{2: 1},
		},
		{
			"a standby before drained",
			[]way{{hop: 1, drain: Standby}, {hop: 2, drain: Drained}},
			true,
			map[uint32]int{1: 1},
		},
		{
			"nobody answers",
			[]way{{hop: 1, drain: Standby, down: true}, {hop: 2, down: true}},
			true,
			map[uint32]int{2: 1},
		},
		{
			"draining before drained",
			[]way{{hop: 1, drain: Drained}, {hop: 2, drain: Draining}, {hop: 3, down: true}},
			true,
			map[uint32]int{2: 1},
		},
		{
			"all are drained",
			[]way{{hop: 1, drain: Drained, weight: 100}, {hop: 2, drain: Drained, weight: 50}},
			true,
			map[uint32]int{1: 2, 2: 1},
		},
		{
			"all are down, and one is drained",
			[]way{{hop: 1, drain: Drained, down: true}, {hop: 2, down: true}},
			true,
			map[uint32]int{2: 1},
		},
		{
			"all are down and drained",
			[]way{{hop: 1, drain: Drained, down: true}, {hop: 2, drain: Drained, down: true}},
			true,
			map[uint32]int{1: 1, 2: 1},
		},
		{"none", nil, true, map[uint32]int{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := map[uint32]int{}
			for _, m := range members(choose(test.ways, test.keeps)) {
				got[m.ID] = m.Weight
			}
			require.Equal(t, test.want, got)
		})
	}
}

// Every weight is one that the kernel accepts, whatever the weights of the gateways.
func TestWeightsOfTheKernel(t *testing.T) {
	for a := range MaxWeight + 1 {
		for b := range MaxWeight + 1 {
			for _, d := range []Drain{InService, Draining} {
				for _, m := range members([]way{{hop: 1, weight: a}, {hop: 2, weight: b}, {hop: 3, drain: d}}) {
					require.True(t, m.Weight >= 1 && m.Weight <= 256, "%d and %d: %v", a, b, m)
				}
			}
		}
	}
	require.Equal(t, []dataplane.Member{{ID: 1, Weight: 1}}, members([]way{{hop: 1}, {hop: 1}}))
}

// What another cluster announces about the share of a gateway is bounded, and a mistake is
// reported.
func TestHostileShare(t *testing.T) {
	for _, test := range []struct {
		config map[string]string
		weight int
		drain  Drain
		err    string
	}{
		{nil, 0, InService, ""},
		{map[string]string{submarinerv1.BackendWeight: "1"}, 1, InService, ""},
		{
			map[string]string{submarinerv1.BackendWeight: "100", submarinerv1.BackendDrain: "draining"},
			100,
			Draining,
			"",
		},
		{map[string]string{submarinerv1.BackendDrain: "drained"}, 0, Drained, ""},
		{map[string]string{submarinerv1.BackendDrain: "standby"}, 0, Standby, ""},
		{
			map[string]string{submarinerv1.BackendWeight: "0"},
			0,
			InService,
			`its gateway-weight "0" is not a whole number from 1 to 100`,
		},
		{map[string]string{submarinerv1.BackendWeight: "101"}, 0, InService, "from 1 to 100"},
		{map[string]string{submarinerv1.BackendWeight: "-1"}, 0, InService, "from 1 to 100"},
		{map[string]string{submarinerv1.BackendWeight: "99999999999999999999"}, 0, InService, "from 1 to 100"},
		{map[string]string{submarinerv1.BackendWeight: ""}, 0, InService, "from 1 to 100"},
		{
			map[string]string{submarinerv1.BackendWeight: "x", submarinerv1.BackendDrain: "gone\x1b[2J"},
			0,
			InService,
			`its gateway-drain "gone\x1b[2J" is none of draining, drained and standby`,
		},
	} {
		g, err := Parse(
			submarinerv1.EndpointSpec{
				ClusterID:     "west",
				CableName:     "c",
				PrivateIP:     "192.0.2.1",
				Backend:       "vxlan",
				Subnets:       []string{"10.2.0.0/16"},
				BackendConfig: test.config,
			},
		)
		require.Equal(t, test.weight, g.Weight)
		require.Equal(t, test.drain, g.Drain)
		if test.err == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, test.err)
		}
	}
}

// A cluster that chooses its ID so that its group collides with that of a cluster before it does
// not change the group of that cluster.
func TestHostileGroupID(t *testing.T) {
	victim := groupIDs([]string{"victim"})["victim"]
	attacker := ""
	for i := 0; attacker == ""; i++ {
		if id := fmt.Sprintf("a%d", i); groupIDs([]string{id})[id] == victim {
			attacker = id
		}
	}
	ids := groupIDs([]string{"victim", attacker, "victim", "x"})
	require.Equal(t, victim, ids["victim"], attacker)
	require.NotEqual(t, victim, ids[attacker])
	require.Len(t, ids, 3)
	require.Equal(t, victim, groupIDs([]string{attacker, "victim"})[attacker], "the first one keeps it")
}
