package agent

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	vnl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"subctl/agent/roles"
	"subctl/cable"
	"subctl/dataplane"
	"subctl/dataplane/dataplanetest"
	"subctl/internal/nstest"
)

// tuple identifies a connection that was opened from a known address: its IP protocol and source
// port.
type tuple struct {
	proto uint8
	port  uint16
}

// tracked returns the connection marks of the connections that a node knows to have been opened
// from an address.
func tracked(t testing.TB, node *nstest.NS, from string) map[tuple]uint32 {
	t.Helper()
	marks := map[tuple]uint32{}
	node.Do(func() {
		entries, err := vnl.ConntrackTableList(vnl.ConntrackTable, unix.AF_INET)
		require.NoError(t, err)
		for _, e := range entries {
			if e.Forward.SrcIP.String() == from {
				marks[tuple{e.Forward.Protocol, e.Forward.SrcPort}] = e.Mark
			}
		}
	})
	return marks
}

// chosen returns the gateways that the worker has chosen for the connections of its pod. It keeps
// each choice in the connection mark: see cable/rules_return.go.
func (s *side) chosen(t testing.TB) map[tuple]string {
	t.Helper()
	gateways := dataplanetest.ReturnGateways(s.plans[[2]string{"worker", roles.Route().Name}].State)
	require.NotEmpty(t, gateways)
	byMAC := map[string]string{}
	byMark := map[uint32]string{}
	for i, e := range s.endpoints() {
		_, mac := cable.VTEP(dataplane.IntraVTEPNet, netip.MustParseAddr(e.Spec.PrivateIP))
		byMAC[mac] = s.names[i]
	}
	for _, g := range gateways {
		byMark[g.Mark] = byMAC[g.MAC]
	}
	out := map[tuple]string{}
	for f, mark := range tracked(t, s.nodes["worker"], s.podIP("worker")) {
		if gw, known := byMark[mark&dataplane.ReturnMask]; known {
			out[f] = gw
		}
	}
	return out
}
