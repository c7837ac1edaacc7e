package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/dataplane"
	"subctl/dataplane/dataplanetest"
	"subctl/sdewan"
	"subctl/sdewan/cnf"
	"subctl/sdewan/rest"
)

// picky is a kernel that refuses a table with a rule of which the note begins with "bad", and what
// refuses returns an error for. It counts the tables that it has checked.
type picky struct {
	dataplanetest.Fake
	refuses func(dataplane.Object) error
	checked int
}

func (k *picky) Check(_ context.Context, o dataplane.Object) error {
	k.checked++
	return badRule(o)
}

func badRule(o dataplane.Object) error {
	r, _ := o.(dataplane.Ruleset)
	for _, c := range r.Chains {
		for _, rule := range c.Rules {
			if strings.HasPrefix(rule.Note, "bad") {
				return fmt.Errorf("no such thing as %s", rule.Note)
			}
		}
	}
	return nil
}

func (k *picky) Apply(ctx context.Context, op dataplane.Op) error {
	if op.New != nil {
		if err := badRule(op.New); err != nil {
			return err
		}
		if err := k.refuses(op.New); err != nil {
			return err
		}
	}
	return k.Fake.Apply(ctx, op)
}

// refusedAgent returns an agent with a LAN and an uplink.
func refusedAgent(config *rest.Config) *Agent {
	u := sdewan.DefaultUplink
	u.Gateway = netip.MustParseAddr("198.51.100.1")
	device := func(name, addr string) dataplane.NetDevice {
		return dataplane.NetDevice{Name: name, Up: true, Addrs: []netip.Prefix{netip.MustParsePrefix(addr)}}
	}
	return New(Options{
		Log:         slog.New(slog.DiscardHandler),
		Config:      func() rest.Config { return *config },
		Attachments: []sdewan.Attachment{{Network: "lan", Device: "net0"}, {Network: "wan1", Device: "net1"}},
		Uplinks:     map[string]sdewan.Uplink{"wan1": u},
		Kernel: Kernel{
			Network: func() (dataplane.Network, error) {
				return dataplane.Network{
					Devices: []dataplane.NetDevice{
						device("net0", "192.168.1.254/24"), device("net1", "198.51.100.2/24"), device("eth0", "10.244.0.7/24"),
					},
					Routes: []dataplane.NetRoute{
						{
							Table: cnf.MainTable,
							Type:  "unicast",
							Dst:   netip.MustParsePrefix("0.0.0.0/0"),
							Via:   netip.MustParseAddr("10.244.0.1"),
							Dev:   "eth0",
						},
						{Table: cnf.MainTable, Type: "unicast", Dst: netip.MustParsePrefix("10.96.0.0/12"), Dev: "eth0"},
					},
					IPsec: dataplane.Engine{Name: dataplane.EngineKernel},
				}, nil
			},
			MarkConnections: func(uint32, uint32) error { return nil },
			EndConnections:  func(func(dataplane.Flow) bool) error { return nil },
			Forward:         func([]string) error { return nil },
			Announce:        func(string, netip.Addr) error { return nil },
		},
	})
}

// Whatever object the kernel or charon refuses: that one has no effect, the report says why, and
// everything else is in force.
func TestOneRefusedObject(t *testing.T) {
	remote := func(name, network string) rest.Remote {
		return rest.Remote{
			Name: name, Gateway: "192.0.2.1", Auth: "psk", PreSharedKey: "sesame", RemoteID: name,
			Connections: []rest.Connection{
				{Name: "c", Type: "tunnel", Mode: "start", LocalSubnet: "192.168.1.0/24", RemoteSubnet: network},
			},
		}
	}
	good := rest.Config{
		Zones: []rest.Zone{
			{Name: "lan", Network: []string{"net0"}},
			{Name: "wan", Network: []string{"net1"}, Masq: "1"},
		},
		Forwardings: []rest.Forwarding{{Name: "out", Src: "lan", Dest: "wan"}},
		Firewall: []rest.FirewallRule{
			{Name: "first", Src: "lan", Dest: "wan", Proto: "tcp", DestPort: "80", Target: "REJECT"},
			{Name: "last", Src: "lan", Dest: "wan", Proto: "tcp", DestPort: "25", Target: "DROP"},
		},
		Routes:     []rest.Route{{Name: "fine", Dst: "10.50.0.0/16", GW: "192.168.1.9", Dev: "net0"}},
		RouteRules: []rest.RouteRule{{Name: "fine", Src: "10.60.0.0/16", Table: "cnf"}},
		Remotes:    []rest.Remote{remote("hub", "10.30.0.0/24")},
	}
	nothing := func(dataplane.Object) error { return nil }
	for name, test := range map[string]struct {
		add     func(*rest.Config)
		refuses func(dataplane.Object) error
		object  string
		reason  string
	}{
		"a route to default": {
			func(c *rest.Config) {
				c.Routes = append(c.Routes, rest.Route{Name: "d", Dst: "default", GW: "192.168.1.9", Dev: "net0"})
			},
			nothing, "route/routes d", "dst: the pod has a route to default already",
		},
		"a route to a network of another program": {
			func(c *rest.Config) {
				c.Routes = append(c.Routes, rest.Route{Name: "s", Dst: "10.96.0.0/12", GW: "192.168.1.9", Dev: "net0"})
			},
			nothing, "route/routes s", "dst: the pod has a route to 10.96.0.0/12 already",
		},
		"a route": {
			func(c *rest.Config) {
				c.Routes = append(c.Routes, rest.Route{Name: "r", Dst: "10.9.0.0/16", GW: "192.168.1.9", Dev: "net0"})
			},
			func(o dataplane.Object) error {
				if m, is := o.(dataplane.Multipath); is && m.Dst.String() == "10.9.0.0/16" {
					return errors.New("invalid argument")
				}
				return nil
			},
			"route/routes r", "the kernel refuses it: invalid argument",
		},
		"a policy rule": {
			func(c *rest.Config) {
				c.RouteRules = append(c.RouteRules, rest.RouteRule{Name: "r", Src: "10.9.0.0/16", Table: "cnf"})
			},
			func(o dataplane.Object) error {
				if m, is := o.(dataplane.PolicyRule); is && m.Src.String() == "10.9.0.0/16" {
					return errors.New("invalid argument")
				}
				return nil
			},
			"rule/rules r", "the kernel refuses it: invalid argument",
		},
		"a key": {
			func(c *rest.Config) { c.Remotes = append(c.Remotes, remote("other", "10.40.0.0/24")) },
			func(o dataplane.Object) error {
				if r, is := o.(dataplane.IKERemote); is && r.Name == "other" {
					return fmt.Errorf("adding it: %w", dataplane.SecretRefused("charon refuses key 1"))
				}
				return nil
			},
			"ipsec/remotes other", "charon refuses key 1: correct it",
		},
		"a connection": {
			func(c *rest.Config) { c.Remotes = append(c.Remotes, remote("other", "10.40.0.0/24")) },
			func(o dataplane.Object) error {
				if r, is := o.(dataplane.IKERemote); is && r.Name == "other" {
					return errors.New("invalid value for: sesame")
				}
				return nil
			},
			"ipsec/remotes other", "charon does not accept it: see the log of the CNF for the reason",
		},
		"a rule of the firewall": {
			func(c *rest.Config) {
				c.Firewall = []rest.FirewallRule{
					c.Firewall[0], {Name: "bad", Src: "lan", Dest: "wan", Proto: "udp", Target: "DROP"}, c.Firewall[1],
				}
			},
			nothing, "firewall/rules bad", "the kernel refuses its rules: no such thing as bad",
		},
		"a translation": {
			func(c *rest.Config) {
				c.NATs = []rest.NAT{{Name: "bad", Target: "MASQUERADE", Dest: "net1"}}
			},
			nothing, "nat/nats bad", "the kernel refuses its rules: no such thing as bad",
		},
	} {
		t.Run(name, func(t *testing.T) {
			config := good
			k := &picky{refuses: test.refuses}
			a := refusedAgent(&config)
			require.NoError(t, a.pass(t.Context(), k))
			report, err := a.Report()
			require.NoError(t, err)
			require.Empty(t, report.String())
			before, err := k.Observe(t.Context())
			require.NoError(t, err)
			require.Zero(t, k.checked, "nothing is tried that nobody refuses")

			config = good
			test.add(&config)
			require.NoError(t, a.pass(t.Context(), k))
			report, err = a.Report()
			require.NoError(t, err, "the others are in force")
			lines := strings.Split(strings.TrimSpace(report.String()), "\n")
			require.Len(t, lines, 1)
			require.True(t, strings.HasPrefix(lines[0], test.object+": "+test.reason), lines[0])
			require.NotContains(t, lines[0], "sesame")
			require.True(t, a.effect().Applied)
			after, err := k.Observe(t.Context())
			require.NoError(t, err)
			for key, o := range before {
				if table, is := o.(dataplane.Ruleset); is { // which has networks of routes, too
					now := after[key].(dataplane.Ruleset)
					require.Equal(t, table.Chain("zone_lan_forward_rules"), now.Chain("zone_lan_forward_rules"))
					continue
				}
				require.True(t, after[key] != nil && after[key].Equal(o), "%v", o)
			}
			checked := k.checked
			require.NoError(t, a.pass(t.Context(), k))
			require.Equal(t, checked, k.checked, "what was found is not searched again")

			config = good
			require.NoError(t, a.pass(t.Context(), k))
			report, _ = a.Report()
			require.Empty(t, report.String())
		})
	}
}

// An object that was refused is tried again when it has changed, and after some time.
func TestRefusedObjectIsTriedAgain(t *testing.T) {
	bad := rest.FirewallRule{Name: "bad", Src: "*", Proto: "udp", Target: "DROP"}
	c := culprits{known: map[cnf.Origin]culprit{
		{Collection: rest.FirewallRules, Name: "bad"}: {&bad, errors.New("no"), time.Unix(100, 0)},
	}}
	config := rest.Config{Firewall: []rest.FirewallRule{bad}, Stopped: []string{"ipsec"}, Awaiting: true}
	part, report := c.without(config, time.Unix(99, 0))
	require.Empty(t, part.Firewall)
	require.Equal(t, []string{"ipsec"}, part.Stopped)
	require.True(t, part.Awaiting)
	require.Equal(t, "firewall/rules bad: the kernel refuses its rules: no\n", report.String())

	changed := config
	changed.Firewall = []rest.FirewallRule{{Name: "bad", Src: "*", Proto: "tcp", Target: "DROP"}}
	part, report = c.without(changed, time.Unix(99, 0))
	require.Equal(t, changed, part)
	require.Empty(t, report)

	c.known = map[cnf.Origin]culprit{
		{Collection: rest.FirewallRules, Name: "bad"}: {&bad, errors.New("no"), time.Unix(100, 0)},
	}
	part, _ = c.without(config, time.Unix(100, 0))
	require.Equal(t, config, part)
}

// All objects that are refused are found, and no others, in few tries.
func TestSuspects(t *testing.T) {
	var config rest.Config
	bad := map[int]bool{0: true, 17: true, 18: true, 500: true, 999: true}
	var want []string
	for i := range 1000 {
		name := fmt.Sprintf("r%03d", i)
		if bad[i] {
			want = append(want, name)
		}
		config.Firewall = append(config.Firewall, rest.FirewallRule{Name: name})
	}
	tries := 0
	found := suspects(config, func(c rest.Config) error {
		tries++
		for _, r := range c.Firewall {
			for _, name := range want {
				if r.Name == name {
					return errors.New(name)
				}
			}
		}
		return nil
	})
	var got []string
	for _, s := range found {
		require.EqualError(t, s.err, s.Name)
		got = append(got, s.Name)
	}
	require.Equal(t, want, got)
	require.Less(t, tries, 120)
	require.Empty(t, suspects(config, func(rest.Config) error { return errors.New("whatever it is") }))
}
