package dataplane_test

import (
	"strings"
	"testing"

	"subctl/dataplane"

	"github.com/stretchr/testify/require"
)

// Any change of rules makes the flow table anew, in the same transaction: packets of the connections in it see no rules. Rules that refer to it are away meanwhile, wherever another
// program has added them.
func TestFlowTableIsMadeAnew(t *testing.T) {
	f := dataplane.FlowTable{Name: "flows", Devices: []string{"net0", "net1"}}
	table := func(rules ...dataplane.TextRule) dataplane.Ruleset {
		return dataplane.Ruleset{
			Table: "t", FlowTables: []dataplane.FlowTable{f},
			Chains: []dataplane.RuleChain{{Name: "flows", Rules: []dataplane.TextRule{{Text: f.Rule(), Handle: 4}}}, {Name: "rules", Rules: rules}},
		}
	}
	have := table(dataplane.TextRule{Text: "accept", Handle: 7}, dataplane.TextRule{Seen: dataplane.Foreign, Handle: 8})
	require.Equal(t, "add table inet t\n", have.Script(have))
	want := table(dataplane.TextRule{Text: "accept"})
	require.Equal(t, `add table inet t
flush chain inet t flows
delete rule inet t rules handle 8
delete flowtable inet t flows
add flowtable inet t flows { hook ingress priority 0; devices = { "net0", "net1" }; }
add rule inet t flows meta ipsec missing rt ipsec missing flow add @flows comment "#`+want.Chains[0].Rules[0].Digest()+`"
`, want.Script(have))

	// A device that is gone, and back, is no longer in it.
	have = table(dataplane.TextRule{Text: "accept", Handle: 7})
	have.FlowTables = []dataplane.FlowTable{{Name: "flows", Devices: []string{"net0"}}}
	require.False(t, want.Equal(have))
	require.Contains(t, want.Script(have), "delete flowtable inet t flows\nadd flowtable inet t flows ")

	// The kernel has lost it, or has none any more in the plan.
	have.FlowTables = nil
	require.NotContains(t, want.Script(have), "delete flowtable")
	require.Contains(t, want.Script(have), "add flowtable")
	without := dataplane.Ruleset{Table: "t", Chains: want.Chains[1:]}
	script := without.Script(want)
	require.NotContains(t, script, "add flowtable")
	require.Less(t, strings.Index(script, "flush chain inet t flows"), strings.Index(script, "delete flowtable inet t flows"))
	require.Less(t, strings.Index(script, "delete flowtable inet t flows"), strings.Index(script, "delete chain inet t flows"))
}
