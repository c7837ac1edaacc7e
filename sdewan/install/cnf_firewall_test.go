package install

import (
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/sdewan"
)

// The rules of --firewall are valid, each after what it uses, and of the CNF.
func TestFirewall(t *testing.T) {
	c := CNF{
		Name: "edge", Namespace: "branch", Purpose: "cnf-1",
		Networks: []Network{{Name: "lan"}, {Name: "wan1"}, {Name: "dmz"}, {Name: "wan2"}},
		Uplinks:  map[string]sdewan.Uplink{"wan1": {}, "wan2": {}},
	}
	objects, err := c.Firewall()
	require.NoError(t, err)
	there := map[string]bool{}
	for _, o := range objects {
		r, ok := o.(sdewan.Rule)
		require.True(t, ok)
		require.NoError(t, sdewan.Check(r))
		require.Equal(t, "branch", r.GetNamespace())
		require.Equal(t, "cnf-1", r.GetLabels()[sdewan.PurposeLabel])
		k, _ := sdewan.KindOf(r)
		for _, u := range k.Uses(r) {
			require.True(t, there[u.String()], "%s uses %s", r.GetName(), u)
		}
		there[k.GVK.Kind+" "+r.GetName()] = true
	}
	require.Len(t, objects, 6)

	c.Uplinks = nil
	_, err = c.Firewall()
	require.ErrorContains(t, err, "--firewall needs --uplinks")
}
