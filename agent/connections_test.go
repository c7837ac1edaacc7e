package agent

import (
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/agent/roles"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/dataplane"
)

// Both ends of a pair that has no cable say which there should be, by which policy, and
// whose fault it is.
func TestPairWithoutACable(t *testing.T) {
	const missing = "strongSwan: there is no /usr/sbin/swanctl in the image"
	for _, test := range []struct {
		scenario, policy string
		engine           dataplane.Engine // of this gateway
		driver, why      string
	}{
		{
			"driver-missing-there",
			"",
			dataplane.Engine{Name: dataplane.EngineKernel},
			"ipsec",
			"refused: cluster west does not offer ipsec",
		},
		{
			"driver-missing-there",
			"ipsec",
			dataplane.Engine{Name: dataplane.EngineKernel},
			"ipsec",
			"refused: cable policy lab wants ipsec: cluster west does not offer ipsec",
		},
		{
			"driver-missing-here",
			"",
			dataplane.Engine{Missing: missing},
			"ipsec",
			"refused: cluster east does not offer ipsec: this node has no IPsec: it lacks " + missing,
		},
		{
			"driver-missing-here",
			"ipsec",
			dataplane.Engine{Missing: missing},
			"ipsec",
			"refused: cable policy lab wants ipsec: cluster east does not offer ipsec: this node has no IPsec: it lacks " +
				missing,
		},
		{
			"behind-nat",
			"vxlan",
			dataplane.Engine{},
			"vxlan",
			"refused: cluster west is behind NAT, through which vxlan does not work: use an encrypted driver, or join the cluster with --natt=false if there is no NAT",
		},
	} {
		t.Run(test.scenario+" "+test.policy, func(t *testing.T) {
			w := newWorld(t, roles.Gateway(), test.scenario)
			facts := w.Kernel.Facts
			w.Kernel.Facts = func() (dataplane.Facts, error) {
				f, err := facts()
				f.IPsec = test.engine
				return f, err
			}
			name := ""
			if test.policy != "" {
				w.policy(t, test.policy, "")
				name = "lab"
			}
			w.run(t)
			c := w.connection(t)
			require.Equal(t, submarinerv1.ConnectionError, c.Status)
			require.Equal(t, test.why, c.StatusMessage)
			require.Equal(t, []string{test.driver, name, ""}, []string{c.Driver, c.Policy, c.Device})
			require.NotContains(t, w.holds(t, dataplane.GatewayOwner), "vxlan")
		})
	}
}
