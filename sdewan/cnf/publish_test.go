package cnf

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/sdewan/rest"
)

// A port of the CNF that leads to a Service does so from zones that forward nothing, too.
func TestPublishedPortsPassZones(t *testing.T) {
	c := rest.Config{
		Zones: []rest.Zone{
			{Name: "lan1", Network: []string{"net0"}, Input: "REJECT", Output: "ACCEPT", Forward: "REJECT"},
		},
		NATs: []rest.NAT{
			{Name: "httpd", Target: "DNAT", Proto: "tcp", SrcDPort: "2288", DestIP: "10.101.0.9", DestPort: "8080"},
		},
	}
	w := World{Interfaces: []Interface{{Name: "net0", Device: "net0", Up: true}}, Default: "eth0"}
	state, report := Plan(c, w)
	require.Empty(t, report)
	require.Equal(t, 2, strings.Count(state.String(), "ct status dnat accept"),
		"of what comes in, and of what is forwarded:\n%s", state)
	c.NATs = nil
	state, _ = Plan(c, w)
	require.NotContains(t, state.String(), "ct status dnat accept")
}
