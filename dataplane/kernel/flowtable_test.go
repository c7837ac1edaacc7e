//go:build linux

package kernel

import (
	"net"
	"slices"
	"strings"
	"testing"

	"subctl/dataplane"
	"subctl/internal/nstest"

	"github.com/stretchr/testify/require"
)

// withFlows returns a table with a flow table.
func withFlows(devices ...string) dataplane.Ruleset {
	r := ruleset("a-name")
	f := dataplane.FlowTable{Name: "flows", Devices: devices}
	r.FlowTables = []dataplane.FlowTable{f}
	r.Chains = append(r.Chains,
		dataplane.RuleChain{Name: "flow_forward", Type: "filter", Hook: "forward", Priority: 10, Rules: []dataplane.TextRule{{Text: "ct state established goto flows"}}},
		dataplane.RuleChain{Name: "flows", Rules: []dataplane.TextRule{{Text: f.Rule()}}})
	slices.SortFunc(r.Chains, func(a, b dataplane.RuleChain) int { return strings.Compare(a.Name, b.Name) })
	return r
}

// A kernel has flow tables if it takes one, and looking changes nothing.
func TestFlowTableProbe(t *testing.T) {
	nstest.Kernel(t, "flow-table")
	ns := nstest.New(t, "cnf")
	ns.Do(func() { require.NoError(t, probeFlowTables(t.Context())) })
	require.Empty(t, ns.Run("nft list ruleset"))
}

// Kernels that lose connections in flow tables, or send packets in clear beside a new tunnel, get no flow table, and the reason names the fault.
func TestKnownFlowTables(t *testing.T) {
	for _, release := range []string{"5.18.0", "6.1.0-51-cloud-amd64", "6.1.192", "6.8-rc1", "6.11.0-29-generic", "6.12.112-amd64", "6.13.12"} {
		require.NoError(t, knownFlowTables(release), release)
	}
	for release, reason := range map[string]string{
		"4.19.1": "Linux 4.19.1 is older than 5.18: packets of a connection in a flow table could pass in clear", "5.17.15-generic": "older than 5.18",
		"6.12.113": "after 24 hours", "6.12.120-amd64": "after 24 hours", "6.14.0-29-generic": "after 24 hours", "6.18.44": "after 24 hours", "7.0.0": "after 24 hours",
		"": "unknown", "x.y": "unknown", "6": "unknown",
	} {
		require.ErrorContains(t, knownFlowTables(release), reason, release)
	}
}

// A flow table is observed as it was put, also from a shell, whatever it follows and whatever follows it, and nothing of it is left.
func TestFlowTableRoundTrip(t *testing.T) {
	nstest.Kernel(t, "flow-table")
	ns, h := node(t, dataplane.CNFOwner)
	before := traces(ns)
	other := withFlows("eth0", "eth1")
	other.Chains[0].Rules = other.Chains[0].Rules[1:]
	for _, r := range []dataplane.Ruleset{withFlows("eth0", "eth1"), withFlows("eth1"), ruleset("a-name"), withFlows("eth1"), other, ruleset("b"), withFlows("eth0")} {
		want := state(t, r)
		require.NotEmpty(t, settle(t, ns, h, want))
		for k, o := range look(t, ns, h) {
			require.True(t, want[k].Equal(o), "%v\n%v", want[k], o)
		}
		require.Empty(t, settle(t, ns, h, want))
	}
	list := func() string { return digests.ReplaceAllString(ns.Run("nft list ruleset"), "") }
	ours := list()
	ns.Run("nft delete table inet subctl-cnf")
	ns.Run(strings.ReplaceAll(withFlows("eth0").String(), "\t", " "))
	require.Equal(t, sorted(ours), sorted(list()))
	settle(t, ns, h, nil)
	require.Empty(t, look(t, ns, h))
	require.ElementsMatch(t, before, traces(ns))
}

// Whatever becomes of a flow table, one Sync repairs it. Watch notices what another program does to it, and that a device is gone.
func TestFlowTableDrift(t *testing.T) {
	nstest.Kernel(t, "flow-table")
	ns, h := node(t, dataplane.CNFOwner)
	ns.Run("ip link add d0 type dummy && ip link set d0 up")
	want := state(t, withFlows("d0", "eth0"))
	settle(t, ns, h, want)
	const table = "inet subctl-cnf"
	requireRepaired(t, ns, h, want, map[string]string{
		"deleted":                 "nft flush chain " + table + " flows && nft delete flowtable " + table + " flows",
		"no connection is added":  "nft flush chain " + table + " flows",
		"another device":          "nft 'add flowtable " + table + " flows { hook ingress priority 0; devices = { eth1 }; }'",
		"a device is new":         "ip link del d0 && ip link add d0 type dummy && ip link set d0 up",
		"another flow table":      "nft 'add flowtable " + table + " more { hook ingress priority 0; devices = { eth1 }; }'",
		"added from elsewhere":    "nft add rule " + table + " zone_lan accept && nft insert rule " + table + " flow_forward flow add @flows",
		"added from a chain more": "nft add chain " + table + " more && nft add rule " + table + " more flow add @flows && nft insert rule " + table + " flow_forward jump more",
		"table deleted":           "nft delete table " + table,
		"table dormant":           "nft 'add table " + table + " { flags dormant; }'",
	})
}

// AcceptResets leaves connections as they are if they are in no flow table.
func TestFlowTableResetsOfOthers(t *testing.T) {
	ns := nstest.New(t, "cnf")
	ns.Run("nft 'table inet t { chain in { type filter hook input priority 0; ct state established; }; }' && ip link set lo up")
	var l net.Listener
	var c net.Conn
	ns.Do(func() {
		var err error
		l, err = net.Listen("tcp4", "127.0.0.1:0")
		require.NoError(t, err)
		c, err = net.Dial("tcp4", l.Addr().String())
		require.NoError(t, err)
	})
	defer l.Close()
	defer c.Close()
	ns.Do(func() {
		before, err := Connections(10)
		require.NoError(t, err)
		require.NotEmpty(t, before)
		require.NoError(t, AcceptResets(t.Context()))
		after, err := Connections(10)
		require.NoError(t, err)
		require.Equal(t, before, after)
	})
}
