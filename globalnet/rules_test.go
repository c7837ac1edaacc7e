package globalnet

import (
	"net/netip"
	"strings"
	"testing"

	"subctl/dataplane"

	"github.com/stretchr/testify/require"
)

// Every chain but those with a hook is led to, by a rule or by elements. Every map is used, and
// every rule that drops packets has a reason that is explained.
func TestRules(t *testing.T) {
	nets := []netip.Prefix{netip.MustParsePrefix("242.1.0.0/16")}
	table := Rules(nets, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")}, []string{"vxlan-tunnel"}, Elements{})
	var rules []string
	for _, c := range table.Chains {
		for _, r := range c.Rules {
			rules = append(rules, r.Text+" ")
			require.False(t, strings.HasSuffix(r.Text, "drop") && dataplane.DropReasons[r.Note] == "", r.Text)
		}
	}
	all := strings.Join(rules, "\n")
	for _, s := range table.Sets {
		require.Contains(t, all, "@"+s.Name+" ")
	}
	for _, c := range table.Chains {
		led := strings.HasPrefix(c.Name, "slots-") || strings.HasPrefix(c.Name, "pool-")
		require.True(t, led || c.Hook != "" || strings.Contains(all, "jump "+c.Name+" ") ||
			strings.Contains(all, "goto "+c.Name+" "), c.Name)
	}
	require.Equal(t, "slots-4096", slotsChain(slotsOf(10_000), false))
}
