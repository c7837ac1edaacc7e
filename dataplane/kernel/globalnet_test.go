//go:build linux

package kernel

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"subctl/dataplane"
	"subctl/globalnet"
	"subctl/internal/nstest"

	"github.com/stretchr/testify/require"
	vnl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// someElements returns elements of each map.
func someElements() globalnet.Elements {
	return globalnet.Elements{
		Pods:      []string{"242.1.0.5 : 10.0.0.9", "242.1.0.6 : 10.0.0.8"},
		Globals:   []string{"10.0.0.8 : 242.1.0.6", "10.0.0.9 : 242.1.0.5"},
		Answering: []string{"242.1.0.1 : 10.0.0.1"},
		Ports:     []string{"242.1.0.7 . 17 . 53 : goto slots-16-client", "242.1.0.7 . 6 . 80 : goto slots-1"},
		Endpoints: []string{
			"242.1.0.7 . 17 . 53 . 3 : 10.0.0.7 . 5353",
			"242.1.0.7 . 6 . 80 . 0 : 10.0.0.7 . 8080",
		},
		Exports:           []string{"10.0.0.7 . 6 . 8080 : 242.1.0.7 . 80"},
		Selected:          []string{"10.0.0.6 : goto pool-2"},
		SelectedAddresses: []string{"10.0.0.6 . 0 : 242.1.0.9", "10.0.0.6 . 1 : 242.1.0.10"},
		SharedAddresses:   []string{"0 : 242.1.0.1", "63 : 242.1.0.2"},
	}
}

// tableOf returns a table with some elements.
func tableOf(e globalnet.Elements) dataplane.Ruleset {
	return globalnet.Rules([]netip.Prefix{cidr("242.1.0.0/16")}, []netip.Prefix{cidr("10.0.0.0/16")},
		[]string{"vxlan-tunnel", "subvx-*"}, e)
}

// nft lists the table as planned. Whatever another program does to it, Watch notices and one Sync
// repairs, and a foreign table stays.
func TestGlobalnet(t *testing.T) {
	ns, h := node(t, dataplane.GatewayOwner)
	ns.Run("nft add table inet submariner-gateway-globalnet && nft add table ip submariner-gateway-globalnet2")
	foreign := ns.Run("nft list tables")
	require.Empty(t, look(t, ns, h))
	want := state(t, tableOf(someElements()))
	require.Len(t, settle(t, ns, h, want), 1)
	clean := fingerprints(want)
	require.Equal(t, clean, fingerprints(look(t, ns, h)))
	listed := ns.Run("nft list table ip submariner-gateway-globalnet")
	for _, line := range []string{
		"type filter hook prerouting priority -250; policy accept;",
		"type nat hook prerouting priority dstnat - 10; policy accept;",
		"type nat hook postrouting priority security - 10; policy accept;",
		"type filter hook postrouting priority 250; policy accept;",
		`ip daddr 242.1.0.0/16 goto arrived`,
		`iifname "subvx-*" goto inward`,
		`oifname "vxlan-tunnel" goto egress`,
		"ip daddr set ip daddr map @pods",
		"ip saddr set ip saddr map @globals",
		"@th,160,32 set @th,160,32 map @pods",
		"@th,192,32 set @th,192,32 map @globals",
		"masquerade",
		"ip daddr 240.0.0.0/8 accept",
		"242.1.0.7 . tcp . 80 : goto slots-1",
		"10.0.0.6 : goto pool-2",
		"10.0.0.6 . 1 : 242.1.0.10",
		"jhash ip saddr . th sport mod 16 seed 0x676c6f62 map @endpoints",
	} {
		require.Contains(t, listed, line)
	}
	const table = " ip submariner-gateway-globalnet "
	signals := watch(t, ns, 10*time.Millisecond)
	for name, damage := range map[string]string{
		"table deleted":                    "nft delete table" + table,
		"table dormant":                    "nft 'add table" + table + "{ flags dormant; }'",
		"chain flushed":                    "nft flush chain" + table + "egress",
		"rule added":                       "nft add rule" + table + "prerouting return",
		"map added":                        "nft 'add map" + table + "x { type ipv4_addr : ipv4_addr; }'",
		"policy":                           "nft 'chain" + table + "dstnat { policy drop; }'",
		"rule about what is inside errors": "nft flush chain" + table + "error-outward",
		"more about what is inside errors": "nft add rule" + table + "error-inward drop",
		"map flushed":                      "nft flush map" + table + "endpoints",
		"element added":                    "nft 'add element" + table + "pods { 242.1.0.77 : 10.0.0.77 }'",
		"element gone":                     "nft 'delete element" + table + "selected { 10.0.0.6 }'",
		"element changed": "nft 'delete element" + table + "pods { 242.1.0.5 }; add element" + table +
			"pods { 242.1.0.5 : 10.0.0.66 }'",
		"class changed": "nft 'delete element" + table + "ports { 242.1.0.7 . tcp . 80 }; add element" +
			table + "ports { 242.1.0.7 . tcp . 80 : goto slots-16 }'",
		"verdict changed": "nft 'delete element" + table + "ports { 242.1.0.7 . tcp . 80 }; add element" +
			table + "ports { 242.1.0.7 . tcp . 80 : drop }'",
		"only one direction": "nft 'delete element" + table + "globals { 10.0.0.9 }'",
	} {
		t.Run(name, func(t *testing.T) {
			calm(signals, 50*time.Millisecond)
			ns.Run(damage)
			require.NotEqual(t, clean, fingerprints(look(t, ns, h)), "Observe must see it")
			select {
			case <-signals:
			case <-time.After(10 * time.Second):
				require.Fail(t, "Watch did not notice")
			}
			require.NotEmpty(t, settle(t, ns, h, want))
			require.Equal(t, clean, fingerprints(look(t, ns, h)))
		})
	}
	settle(t, ns, h, nil)
	require.Equal(t, foreign, ns.Run("nft list tables"))
}

// Elements are changed one by one: rules and other elements stay.
func TestGlobalnetChangesInPlace(t *testing.T) {
	ns, h := node(t, dataplane.GatewayOwner)
	settle(t, ns, h, state(t, tableOf(someElements())))
	g := someElements() // what was planned must not change: it is compared with
	handles := ns.Run("nft -a list table ip submariner-gateway-globalnet | grep chain")
	g.Pods[0] = "242.1.0.5 : 10.0.0.7"
	g.Globals = []string{"10.0.0.7 : 242.1.0.5", "10.0.0.8 : 242.1.0.6"}
	g.Ports = g.Ports[:1]
	g.Endpoints = []string{"242.1.0.7 . 17 . 53 . 3 : 10.0.0.3 . 53"}
	ops := settle(t, ns, h, state(t, tableOf(g)))
	require.Len(t, ops, 1)
	require.Equal(t, handles, ns.Run("nft -a list table ip submariner-gateway-globalnet | grep chain"))
	require.Equal(t, fingerprints(state(t, tableOf(g))), fingerprints(look(t, ns, h)))
	require.Contains(t, ops[0].String(),
		"delete element ip submariner-gateway-globalnet pods { 242.1.0.5 : 10.0.0.9 }\n")
	require.NotContains(t, ops[0].String(), "242.1.0.6", "only what changes is printed")
}

// Connections whose translated source the gateway no longer gives, connections to ports that are
// not exported any more, and UDP connections to endpoints that are gone, are forgotten: the next
// packet begins a new one. All others stay. What fails is tried again by the next Sync.
func TestGlobalnetEndsFlows(t *testing.T) {
	ns, h := node(t, dataplane.GatewayOwner)
	settle(t, ns, h, state(t, tableOf(someElements())))
	track := func(proto uint8, from, to, repliesFrom, returnsTo string, port uint16) {
		flow := &vnl.ConntrackFlow{
			FamilyType: unix.AF_INET, TimeOut: 600,
			Forward: vnl.IPTuple{
				Protocol: proto,
				SrcIP:    net.ParseIP(from).To4(),
				DstIP:    net.ParseIP(to).To4(),
				SrcPort:  1000,
				DstPort:  53,
			},
			Reverse: vnl.IPTuple{
				Protocol: proto,
				SrcIP:    net.ParseIP(repliesFrom).To4(),
				DstIP:    net.ParseIP(returnsTo).To4(),
				SrcPort:  port,
				DstPort:  1000,
			},
		}
		ns.Do(func() { require.NoError(t, vnl.ConntrackCreate(vnl.ConntrackTable, unix.AF_INET, flow), "%s", to) })
	}
	track(unix.IPPROTO_UDP, "10.0.0.20", "203.0.113.1", "203.0.113.1", "242.1.0.2", 53) // is gone
	track(unix.IPPROTO_UDP, "10.0.0.6", "203.0.113.2", "203.0.113.2", "242.1.0.10", 53) // is gone
	track(unix.IPPROTO_UDP, "203.0.113.3", "242.1.0.7", "10.0.0.7", "203.0.113.3", 5353)
	track(unix.IPPROTO_TCP, "10.0.0.20", "203.0.113.4", "203.0.113.4", "242.1.0.2", 53)
	track(unix.IPPROTO_UDP, "10.0.0.20", "203.0.113.5", "203.0.113.5", "242.1.0.1", 53) // still shared
	track(unix.IPPROTO_UDP, "10.0.0.6", "203.0.113.6", "203.0.113.6", "242.1.0.9", 53)
	track(unix.IPPROTO_UDP, "242.1.0.2", "203.0.113.7", "203.0.113.7", "242.1.0.2", 53) // is not translated
	track(unix.IPPROTO_UDP, "203.0.113.8", "242.1.0.7", "10.0.0.3", "203.0.113.8", 5353)
	track(unix.IPPROTO_TCP, "203.0.113.9", "242.1.0.7", "10.0.0.7", "203.0.113.9", 5353)
	entries := func() (left []string) {
		ns.Do(func() {
			all, err := vnl.ConntrackTableList(vnl.ConntrackTable, unix.AF_INET)
			require.NoError(t, err)
			for _, f := range all {
				for _, ip := range []net.IP{f.Forward.SrcIP, f.Forward.DstIP} {
					if rest, is := strings.CutPrefix(ip.String(), "203.0.113."); is {
						left = append(left, rest)
					}
				}
			}
		})
		slices.Sort(left)
		return left
	}
	require.Equal(t, []string{"1", "2", "3", "4", "5", "6", "7", "8", "9"}, entries())

	g := someElements()
	g.SharedAddresses[1] = "63 : 242.1.0.3"
	g.Selected = []string{"10.0.0.6 : goto pool-1"}
	g.SelectedAddresses = g.SelectedAddresses[:1]
	g.Endpoints[0] = "242.1.0.7 . 17 . 53 . 3 : 10.0.0.3 . 5353"
	end := h.flows.EndMatching
	failures := 0
	h.flows.EndMatching = func(func(original, reply dataplane.Flow) bool) error {
		failures++
		return errors.New("the kernel has no memory")
	}
	ns.Do(func() {
		_, err := dataplane.Sync(t.Context(), h, state(t, tableOf(g)))
		require.ErrorContains(t, err, "no memory")
	})
	require.Positive(t, failures)
	require.Len(t, entries(), 9)
	h.flows.EndMatching = end
	settle(t, ns, h, state(t, tableOf(g)))
	require.Equal(t, []string{"5", "6", "7", "8", "9"}, entries())

	ports := g.Ports
	g.Ports = []string{ports[0], "242.1.0.7 . 6 . 53 : goto slots-0", ports[1]}
	settle(t, ns, h, state(t, tableOf(g)))
	g.Ports = []string{ports[0], "242.1.0.7 . 6 . 53 : goto slots-1", ports[1]}
	settle(t, ns, h, state(t, tableOf(g)))
	require.Equal(t, []string{"5", "6", "7", "8", "9"}, entries(), "a port that is still exported")
	g.Ports = ports
	settle(t, ns, h, state(t, tableOf(g)))
	require.Equal(t, []string{"5", "6", "7", "8"}, entries())

	t.Log(
		"a pod that has no address of its own any more, and a gateway that keeps the address that new connections do not get")
	track(unix.IPPROTO_UDP, "10.0.0.9", "203.0.113.10", "203.0.113.10", "10.0.0.9", 53)
	track(unix.IPPROTO_UDP, "203.0.113.11", "10.0.0.9", "10.0.0.9", "203.0.113.11", 53)
	track(unix.IPPROTO_UDP, "10.0.0.8", "203.0.113.12", "203.0.113.12", "10.0.0.8", 53) // has another address
	// is translated by somebody else
	track(unix.IPPROTO_UDP, "10.0.0.9", "203.0.113.13", "203.0.113.13", "172.18.0.2", 53)
	track(unix.IPPROTO_UDP, "10.0.0.9", "10.0.0.20", "10.0.0.20", "10.0.0.9", 53)
	g.Pods = []string{"242.1.0.8 : 10.0.0.8"}
	g.Globals = []string{"10.0.0.8 : 242.1.0.8"}
	g.SharedAddresses = []string{"0 : 242.1.0.4", "63 : 242.1.0.4"}
	settle(t, ns, h, state(t, tableOf(g)))
	require.Equal(t, []string{"12", "13", "5", "6", "7", "8"}, entries())
	require.Contains(t, ns.Run("conntrack -L 2>/dev/null || cat /proc/net/nf_conntrack"), "10.0.0.20",
		"a connection inside the cluster")

	t.Log("no table any more, as after uninstall")
	track(unix.IPPROTO_UDP, "10.0.0.20", "203.0.113.14", "203.0.113.14", "242.1.0.4", 53)
	track(unix.IPPROTO_UDP, "10.0.0.8", "203.0.113.15", "203.0.113.15", "10.0.0.8", 53)
	settle(t, ns, h, dataplane.State{})
	require.Equal(t, []string{"13", "5", "7"}, entries(), "somebody else translates these, or nobody")
	require.Contains(t, ns.Run("conntrack -L 2>/dev/null || cat /proc/net/nf_conntrack"), "10.0.0.20",
		"a connection inside the cluster")

	t.Log(
		"a table where there was none: what pods have sent so far is not translated, and never would be while they send")
	track(unix.IPPROTO_UDP, "10.0.0.20", "203.0.113.16", "203.0.113.16", "10.0.0.20", 53)
	track(unix.IPPROTO_UDP, "203.0.113.17", "10.0.0.20", "10.0.0.20", "203.0.113.17", 53)
	settle(t, ns, h, state(t, tableOf(g)))
	require.Equal(t, []string{"13", "17", "5", "7"}, entries())
}

// A table of the version before is replaced without a gap: at no time is there a hook without its
// rules, and the rules of one version or of the other are there, all of them.
func TestGlobalnetOfVersionBefore(t *testing.T) {
	ns, h := node(t, dataplane.GatewayOwner)
	ns.Run("nft -f - <<'END'\n" + versionBefore + "END")
	want := state(t, tableOf(someElements()))
	changes, stop := rulesOfHooks(t, ns)
	require.Len(t, settle(t, ns, h, want), 1)
	requireEqual(t, want, look(t, ns, h))
	stop()
	for _, rules := range changes() {
		old := strings.Contains(rules, "errors-in")
		require.NotEqual(t, old, strings.Contains(rules, "error-inward"), rules)
		require.Equal(t, old, strings.Contains(rules, "@own"), rules)
		require.NotEqual(t, old, strings.Contains(rules, "@pods"), rules)
	}
	listed := ns.Run("nft list table ip submariner-gateway-globalnet")
	for _, old := range []string{"map own ", "map services ", "chain errors-in "} {
		require.NotContains(t, listed, old)
	}
}

// versionBefore is a part of a table of the version before: maps, chains and rules.
const versionBefore = `table ip submariner-gateway-globalnet {
	map own { type ipv4_addr : ipv4_addr; elements = { 242.1.0.5 : 10.0.0.9 }; }
	map owners { type ipv4_addr : ipv4_addr; elements = { 10.0.0.9 : 242.1.0.5 }; }
	map services {
		type ipv4_addr . inet_proto . inet_service : verdict
		elements = { 242.1.0.7 . 6 . 80 : goto slots-1 }
	}
	map pools { type ipv4_addr : verdict; elements = { 10.0.0.6 : goto pool-2 }; }
	chain slots-1 { dnat to ip daddr; }
	chain pool-2 { snat to ip saddr; }
	chain errors-in { icmp type 3 accept; }
	chain inward {
		meta l4proto icmp jump errors-in
		ip daddr set ip daddr map @own
	}
	chain arrived { iifname "vxlan-tunnel" goto inward; }
	chain choose { ip daddr . meta l4proto . th dport vmap @services; }
	chain prerouting {
		type filter hook prerouting priority -250; policy accept;
		ip daddr 242.1.0.0/16 goto arrived
	}
	chain dstnat {
		type nat hook prerouting priority -110; policy accept;
		ip daddr 242.1.0.0/16 goto choose
	}
	chain srcnat { type nat hook postrouting priority 40; policy accept; }
	chain postrouting { type filter hook postrouting priority 250; policy accept; }
}
`

// rulesOfHooks lists the chains "prerouting" and "inward" all the time until stop is called, and
// returns what it has seen.
func rulesOfHooks(t *testing.T, ns *nstest.NS) (seen func() []string, stop func()) {
	t.Helper()
	stopped := make(chan struct{})
	ended := make(chan struct{})
	var texts []string
	go func() {
		defer close(ended)
		for {
			select {
			case <-stopped:
				return
			default:
				texts = append(texts, ns.Run("nft list table ip submariner-gateway-globalnet | "+
					"sed -n '/chain inward/,/^.}/p;/chain prerouting/,/^.}/p'"))
			}
		}
	}()
	return func() []string { return texts }, func() { close(stopped); <-ended }
}
