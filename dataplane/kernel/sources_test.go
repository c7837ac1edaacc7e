//go:build linux

package kernel

import (
	"net/netip"
	"testing"
	"time"

	"subctl/dataplane"

	"github.com/stretchr/testify/require"
)

// nft lists the table as planned. Whatever another program does to it, Watch notices and one
// Sync repairs. In the end there is no table.
func TestSources(t *testing.T) {
	ns, h := node(t, dataplane.GatewayOwner)
	want := state(t, dataplane.Sources{
		Table: "submariner-gateway", Local: []netip.Prefix{cidr("10.0.0.0/16")},
		Remote: []netip.Prefix{cidr("10.1.0.0/16"), cidr("10.2.0.0/16")},
	})
	require.Len(t, settle(t, ns, h, want), 1)
	rules := ns.Run("nft list chain ip submariner-gateway postrouting")
	require.Contains(t, rules, "type nat hook postrouting priority security; policy accept;", "which is 50")
	require.Contains(t, rules, `ip saddr 10.0.0.0/16 ip daddr @remote snat to ip saddr comment "from 10.0.0.0/16"`)
	require.Contains(t, rules, `ip saddr @remote ip daddr 10.0.0.0/16 snat to ip saddr comment "to 10.0.0.0/16"`)
	signals := watch(t, ns, 10*time.Millisecond)
	for name, damage := range map[string]string{
		"table deleted":         "nft delete table ip submariner-gateway",
		"table dormant":         "nft 'add table ip submariner-gateway { flags dormant; }'",
		"table's rule deleted":  "nft delete rule ip submariner-gateway postrouting handle $(nft -a list chain ip submariner-gateway postrouting | grep -o 'handle [0-9]*$' | tail -1 | cut -d' ' -f2)",
		"table's rule added":    "nft add rule ip submariner-gateway postrouting return",
		"table's chain flushed": "nft flush chain ip submariner-gateway postrouting",
		"table's chain added":   "nft add chain ip submariner-gateway x",
		"table's policy drop":   "nft 'chain ip submariner-gateway postrouting { policy drop; }'",
		"table's set flushed":   "nft flush set ip submariner-gateway remote",
		"table's element added": "nft 'add element ip submariner-gateway remote { 10.3.0.0/16 }'",
		"table's odd element":   "nft 'add element ip submariner-gateway remote { 10.3.0.0-10.4.0.7 }'",
		"table's element gone":  "nft 'delete element ip submariner-gateway remote { 10.1.0.0/16 }'",
		"table added to":        "nft 'add set ip submariner-gateway x { type ipv4_addr; }'",
	} {
		t.Run(name, func(t *testing.T) {
			calm(signals, 50*time.Millisecond)
			ns.Run(damage)
			require.NotEqual(t, want, look(t, ns, h), "Observe must see it")
			select {
			case <-signals:
			case <-time.After(10 * time.Second):
				require.Fail(t, "Watch did not notice")
			}
			require.NotEmpty(t, settle(t, ns, h, want))
			require.Equal(t, want, look(t, ns, h))
		})
	}
	settle(t, ns, h, nil)
	require.NotContains(t, ns.Run("nft list tables"), "submariner")
}

// Elements are added and removed singly: the others are there all the time.
func TestSourcesChangeInPlace(t *testing.T) {
	ns, h := node(t, dataplane.GatewayOwner)
	s := dataplane.Sources{Table: "submariner-gateway", Local: []netip.Prefix{cidr("10.0.0.0/16")}}
	for i := range 3000 { // more than one message
		s.Remote = append(s.Remote, netip.PrefixFrom(netip.AddrFrom4([4]byte{20, byte(i >> 8), byte(i), 0}), 24))
	}
	settle(t, ns, h, state(t, s))
	handle := ns.Run("nft -a list tables | grep submariner; nft -a list chain ip submariner-gateway postrouting")
	s.Remote = append(s.Remote[5:1000], s.Remote[2000:]...)
	settle(t, ns, h, state(t, s))
	require.Equal(t, handle, ns.Run("nft -a list tables | grep submariner; nft -a list chain ip submariner-gateway postrouting"))
	require.Equal(t, state(t, s), look(t, ns, h))
}

// A table that masquerades connections to Services is listed as planned, and changes from and to one that does not.
func TestSourcesMasquerade(t *testing.T) {
	ns, h := node(t, dataplane.GatewayOwner)
	s := dataplane.Sources{Table: "submariner-gateway", Local: []netip.Prefix{cidr("10.0.0.0/16")}, Remote: []netip.Prefix{cidr("10.1.0.0/16")}}
	rules := func() string { return ns.Run("nft list chain ip submariner-gateway postrouting") }
	settle(t, ns, h, state(t, s))
	require.NotContains(t, rules(), "masquerade")
	s.Masquerades = true
	settle(t, ns, h, state(t, s))
	require.Equal(t, state(t, s), look(t, ns, h))
	const rule = `ip saddr @remote ip daddr 10.0.0.0/16 ct status dnat oifname != "vx-submariner" oifname != "cali*" oifname != "lxc*" oifname != "veth*" masquerade`
	require.Contains(t, rules(), rule)
	s.Here = cidr("10.0.3.0/24")
	settle(t, ns, h, state(t, s))
	require.Equal(t, state(t, s), look(t, ns, h))
	require.Regexp(t, `(?s)ip daddr 10\.0\.3\.0/24 snat to ip saddr comment "here 10\.0\.3\.0/24".*masquerade`, rules())
	ns.Run("nft delete rule ip submariner-gateway postrouting handle $(nft -a list chain ip submariner-gateway postrouting | grep 'dnat.*masquerade' | sed 's/.*handle //')")
	require.NotEqual(t, state(t, s), look(t, ns, h))
	settle(t, ns, h, state(t, s))
	require.Contains(t, rules(), rule)
	s.Masquerades, s.Here, s.Node = false, netip.Prefix{}, netip.MustParseAddr("10.0.3.1")
	settle(t, ns, h, state(t, s))
	require.NotContains(t, rules(), "masquerade")
	require.Contains(t, rules(), "ip saddr != @remote ip daddr @remote fib saddr type local snat to 10.0.3.1")
	require.Contains(t, rules(), "ip saddr != @remote ip daddr @remote ct status dnat snat to 10.0.3.1")
	require.Equal(t, state(t, s), look(t, ns, h))
	s.Node = netip.MustParseAddr("10.0.3.2")
	require.NotEmpty(t, settle(t, ns, h, state(t, s)))
	require.Equal(t, state(t, s), look(t, ns, h))
	settle(t, ns, h, nil)
	require.NotContains(t, ns.Run("nft list tables"), "submariner")
}
