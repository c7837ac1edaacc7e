package cnf

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/dataplane"
	"subctl/sdewan/rest"
)

// lockouts are configurations that concern all packets, including the packets of the REST API.
var lockouts = map[string]rest.Config{
	"a port that leads to a Service": {
		NATs: []rest.NAT{
			{Name: "web", Target: "DNAT", Proto: "tcp", SrcDPort: "443", DestIP: "10.101.0.9", DestPort: "443"},
		},
	},
	"a port of the older kind": {
		Services: []rest.Service{{Name: "web", FullName: "web.default.svc", Port: "80", DPort: "80"}},
	},
	"a rule that refuses everything": {
		Firewall: []rest.FirewallRule{{Name: "all", Src: "*", Proto: "all", Target: "DROP"}},
	},
	"a zone of all addresses": {
		Zones: []rest.Zone{{Name: "all", Subnet: []string{"0.0.0.0/0"}, Input: "DROP", Output: "DROP"}},
	},
	"a zone of all that is not tracked": {
		Zones:    []rest.Zone{{Name: "all", Subnet: []string{"0.0.0.0/0"}, Output: "DROP"}},
		Firewall: []rest.FirewallRule{{Name: "raw", Src: "all", Proto: "all", Target: "NOTRACK"}},
	},
	"a mark that means to drop": {
		Firewall: []rest.FirewallRule{{Name: "mark", Proto: "all", Target: "MARK", SetMark: "0xffffffff"}},
	},
	"a redirect of a zone of everything": {
		Zones: []rest.Zone{{Name: "all", Subnet: []string{"0.0.0.0/0"}}},
		Redirects: []rest.Redirect{
			{Name: "web", Src: "all", SrcDPort: "443", Proto: "tcp", DestIP: "10.101.0.9", Target: "DNAT"},
		},
	},
	"a tunnel to all private networks": {
		Remotes: []rest.Remote{
			{Name: "hub", Gateway: "192.0.2.1", Auth: "psk", PreSharedKey: "x", Connections: []rest.Connection{
				{Name: "a", Type: "tunnel", Mode: "add", RemoteSubnet: "10.0.0.0/8"},
			}},
		},
	},
	"a tunnel to everything": {
		Remotes: []rest.Remote{
			{Name: "hub", Gateway: "192.0.2.1", Auth: "psk", PreSharedKey: "x", Connections: []rest.Connection{
				{Name: "a", Type: "tunnel", Mode: "add", LocalSubnet: "10.0.0.0/8", RemoteSubnet: "0.0.0.0/0"},
			}},
		},
	},
}

// Whatever a CNF is told, its controller and the probe of its readiness reach it: the first rules
// of each chain let their packets pass, and no rule takes away the mark of the answers.
func TestHostileLockout(t *testing.T) {
	w := World{
		Addrs: []Addr{
			{Device: "eth0", Prefix: netip.MustParsePrefix("10.244.1.5/24")},
			{Device: "net1", Prefix: netip.MustParsePrefix("198.51.100.2/24")},
		},
		Default:  "eth0",
		API:      []netip.AddrPort{netip.MustParseAddrPort("10.244.1.5:443"), netip.MustParseAddrPort("10.244.1.5:80")},
		Resolved: map[string]netip.Addr{"web.default.svc": netip.MustParseAddr("10.101.0.9")},
	}
	const free = `iifname "eth0" ip daddr 10.244.1.5 tcp dport { 80, 443 } accept`
	for name, c := range lockouts {
		t.Run(name, func(t *testing.T) {
			s, report := Plan(c, w)
			if len(c.Remotes) == 0 {
				require.Empty(t, report)
			}
			require.Contains(t, s.String(), "ip rule add pref 94 fwmark 0x20000000/0x20000000 lookup 254")
			for _, o := range s {
				r, ok := o.(dataplane.Ruleset)
				for _, chain := range r.Chains {
					if !ok || chain.Hook != "prerouting" && chain.Hook != "input" ||
						strings.HasPrefix(chain.Name, "uplink_") {
						continue
					}
					require.Equal(t, free, chain.Rules[0].Text, chain.Name)
				}
			}
			for _, set := range strings.Split(s.String(), "meta mark set ")[1:] {
				require.Regexp(t, `^meta mark & 0x[6-9a-f]`, set, "the mark of the API's answers goes")
			}
		})
	}
	s, _ := Plan(rest.Config{}, w)
	require.NotContains(t, s.String(), "nft", "without objects there is nothing to guard")
}

// No rule of the firewall gives packets of others the mark with which the IPsec daemon's own pass
// beside tunnels, or takes that away.
func TestHostileMarks(t *testing.T) {
	for mark, want := range map[string]string{
		"0x40000000":            "& 0x60000000 ^ 0x00000000",
		"0xffffffff":            "& 0x60000000 ^ 0x9fffffff",
		"0x10":                  "& 0x60000000 ^ 0x00000010",
		"0x40000001/0xf0000001": "& 0x6ffffffe ^ 0x00000001",
	} {
		for _, r := range []rest.FirewallRule{{SetMark: mark}, {SetXMark: mark}} {
			text, err := setMark(r)
			require.NoError(t, err)
			require.Contains(t, text, want)
		}
	}
}

// Zones with very many mistakes take neither memory nor time: a CNF that has ended for that reason
// would plan the same again.
func TestHostileZones(t *testing.T) {
	w := World{Interfaces: []Interface{{Name: "net0", Device: "net0", Up: true, Online: true}}}
	c := rest.Config{}
	for i := range 128 {
		z := rest.Zone{Name: fmt.Sprintf("%s%03d", strings.Repeat("z", 250), i)}
		for j := range 600 {
			z.Network = append(z.Network, []string{"net0", strings.Repeat("n", 200)}[j%2])
		}
		c.Zones = append(c.Zones, z)
	}
	s, report := Plan(c, w)
	require.Len(t, report, 128, "every zone names a network that does not exist")
	size := len(s.String())
	for _, l := range report {
		require.LessOrEqual(t, len(l.Message), maxProblem+10)
		size += len(l.Message)
	}
	require.Less(t, size, 16<<20)
}
