package cnf

import (
	"net/netip"
	"slices"
	"testing"

	"subctl/dataplane"
	"subctl/sdewan/rest"

	"github.com/stretchr/testify/require"
)

// flowsOf returns the flow table of a plan, nil if there is none, and the rules that say whose packets add to it.
func flowsOf(t *testing.T, c rest.Config, w World) (flows *dataplane.FlowTable, from []string) {
	t.Helper()
	state, _ := Plan(c, w)
	for _, o := range state {
		r, is := o.(dataplane.Ruleset)
		if !is {
			continue
		}
		require.LessOrEqual(t, len(r.FlowTables), 1)
		for _, f := range r.FlowTables {
			flows = &f
		}
		for _, chain := range r.Chains {
			for _, rule := range chain.Rules {
				if chain.Name == "flow_from" {
					from = append(from, rule.Text)
				}
			}
		}
	}
	return flows, from
}

// Where packets of the two directions of a connection may be treated differently, there is no flow table.
func TestFlowTableLeftOut(t *testing.T) {
	for name, change := range map[string]func(*rest.Config, *World){
		"the kernel has none":   func(_ *rest.Config, w *World) { w.FlowTables = false },
		"nothing is configured": func(c *rest.Config, _ *World) { *c = rest.Config{Stopped: []string{"mwan3"}} },
		"nothing is forwarded":  func(c *rest.Config, _ *World) { c.Awaiting = true },
		"a route for sources": func(c *rest.Config, _ *World) {
			c.RouteRules = []rest.RouteRule{{Name: "a", Src: "192.168.1.7", Table: "cnf"}}
		},
		"an application": func(c *rest.Config, _ *World) {
			c.Applications = []rest.Application{{Name: "a", IPList: "192.168.1.7"}}
		},
		"packets are marked": func(c *rest.Config, _ *World) {
			c.Firewall = []rest.FirewallRule{{Name: "a", Src: "lan", Dest: "wan", Target: "MARK", SetMark: "1"}}
		},
		"packets are not tracked": func(c *rest.Config, _ *World) {
			c.Firewall = []rest.FirewallRule{{Name: "a", Src: "lan", Target: "NOTRACK"}}
		},
		"packets of devices are marked": func(c *rest.Config, _ *World) {
			c.Network = []rest.FirewallRule{{Name: "a", Src: "net0", Target: "MARK", SetMark: "1"}}
		},
		"IPsec without a device": func(c *rest.Config, w *World) {
			w.IPsec = dataplane.Engine{Name: dataplane.EngineKernel}
			c.Remotes = []rest.Remote{tunnel(dataplane.TransportMode, "")}
		},
		"a tunnel to everything": func(c *rest.Config, w *World) {
			w.IPsec = dataplane.Engine{Name: dataplane.EngineKernel}
			c.Remotes = []rest.Remote{tunnel(dataplane.TunnelMode, "0.0.0.0/0")}
		},
		"a tunnel to everything that has just left": func(_ *rest.Config, w *World) {
			w.Left = []rest.Remote{tunnel(dataplane.TunnelMode, "0.0.0.0/0")}
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, c, w := scenario(t, "testdata/18-flows.txtar")
			flows, _ := flowsOf(t, c, w)
			require.NotNil(t, flows)
			change(&c, &w)
			flows, from := flowsOf(t, c, w)
			require.Nil(t, flows)
			require.Empty(t, from)
		})
	}
}

func tunnel(mode, to string) rest.Remote {
	return rest.Remote{Name: "hub", Gateway: "192.0.2.10", Auth: "psk", PreSharedKey: "correct-horse-battery", Connections: []rest.Connection{{
		Name: "a", Type: mode, Mode: "start", LocalSubnet: "192.168.1.0/24", RemoteSubnet: to,
	}}}
}

// Packets add connections only if their sources are reached through the device on which they came, and through nothing else.
func TestFlowTableSources(t *testing.T) {
	_, c, w := scenario(t, "testdata/18-flows.txtar")
	route := func(dst, device string) {
		w.Routes = append(w.Routes, MainRoute{Dst: netip.MustParsePrefix(dst), Device: device})
	}
	route("10.1.0.0/16", "net0")
	route("10.1.2.0/24", "eth0") // so 10.1.0.0/16 is not all behind net0
	route("10.2.3.0/24", "net0")
	route("10.2.0.0/16", "eth0")
	route("10.3.0.0/24", "net0")
	route("10.3.0.0/24", "net1")
	route("10.4.0.0/24", "net0")
	w.IPsec = dataplane.Engine{Name: dataplane.EngineKernel}
	c.Remotes = []rest.Remote{tunnel(dataplane.TunnelMode, "10.4.0.0/16")}
	w.Addrs = append(w.Addrs, Addr{Device: "net3", Prefix: netip.MustParsePrefix("10.9.0.1/24")}) // no network of the CNF
	route("10.9.0.0/24", "net3")
	flows, from := flowsOf(t, c, w)
	require.Equal(t, []string{"net0", "net1", "net2"}, flows.Devices)
	require.Equal(t, []string{
		`iifname "net0" ip saddr { 10.2.3.0/24, 192.168.1.0/24 } goto flow_to`,
		`iifname "net1" ip saddr 198.51.100.0/24 goto flow_to`,
		`iifname "net2" ip saddr 203.0.113.0/24 goto flow_to`,
	}, from)
}

// Connections of an uplink that is offline are not added: those that others began would have a route to it for their answers.
func TestFlowTableOfflineUplink(t *testing.T) {
	_, c, w := scenario(t, "testdata/18-flows.txtar")
	require.NotContains(t, flowTo(t, c, w)[0], "return")
	w.Interfaces[slices.IndexFunc(w.Interfaces, func(f Interface) bool { return f.Name == "net1" })].Online = false
	require.Regexp(t, `^ct mark & 0x[0-9a-f]+ == 0x0200 return$`, flowTo(t, c, w)[0])
}

// flowTo returns the rules about which packets that are let into the flow table are added.
func flowTo(t *testing.T, c rest.Config, w World) (rules []string) {
	t.Helper()
	state, _ := Plan(c, w)
	for _, o := range state {
		if r, is := o.(dataplane.Ruleset); is {
			for _, chain := range r.Chains {
				for _, rule := range chain.Rules {
					if chain.Name == "flow_to" {
						rules = append(rules, rule.Text)
					}
				}
			}
		}
	}
	return rules
}

// Devices that do not exist, or have no address, and the device of the REST API are not in the flow table: a flow table with the former would be refused.
func TestFlowTableDevices(t *testing.T) {
	_, c, w := scenario(t, "testdata/18-flows.txtar")
	w.Interfaces = append(w.Interfaces, Interface{Name: "net3", Device: "net3"}, Interface{Name: "eth0", Device: "eth0", Up: true, Online: true})
	flows, _ := flowsOf(t, c, w)
	require.Equal(t, []string{"net0", "net1", "net2"}, flows.Devices)
	w.Addrs = w.Addrs[:3] // net2 is gone
	w.Routes = w.Routes[:3]
	flows, _ = flowsOf(t, c, w)
	require.Equal(t, []string{"net0", "net1"}, flows.Devices)
}
