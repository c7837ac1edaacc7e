package agent

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/dataplane"
	"subctl/sdewan"
	"subctl/sdewan/cnf"
	"subctl/sdewan/rest"
)

// reporting is an agent of a pod with a LAN, a tracked uplink, one without hosts to track, and one
// whose device is missing.
func reporting() *Agent {
	prefix := netip.MustParsePrefix
	addr := netip.MustParseAddr
	uplink := func(gateway string, track ...netip.Addr) sdewan.Uplink {
		u := sdewan.DefaultUplink
		u.Gateway = addr(gateway)
		u.TrackIPs = track
		return u
	}
	a := New(Options{
		Attachments: []sdewan.Attachment{
			{Network: "lan", Device: "net0"},
			{Network: "wan1", Device: "net1"},
			{Network: "wan2", Device: "net2"},
			{Network: "wan3", Device: "net3"},
		},
		Uplinks: map[string]sdewan.Uplink{
			"wan1": uplink("198.51.100.1", addr("192.0.2.81"), addr("192.0.2.80")),
			"wan2": uplink("203.0.113.1"),
			"wan3": uplink("10.3.0.1"),
		},
		Config: func() rest.Config {
			return rest.Config{Policies: []rest.Policy{
				{
					Name: "both",
					Members: []rest.Member{
						{Interface: "net1", Metric: "1", Weight: "2"},
						{Interface: "net2", Metric: "1", Weight: "1"},
					},
				},
				{Name: "nowhere", Members: []rest.Member{{Interface: "net3"}}},
			}}
		},
		Kernel: Kernel{Connections: func(most int) ([]dataplane.Connection, error) {
			port := netip.MustParseAddrPort
			tuple := func(a, b netip.AddrPort) dataplane.Tuple { return dataplane.Tuple{Src: a, Dst: b} }
			counted := tuple(port("192.168.1.2:4711"), port("192.0.2.1:80"))
			counted.Packets = 5
			counted.Bytes = 420
			all := []dataplane.Connection{
				{
					Protocol: "tcp",
					State:    "ESTABLISHED",
					Request:  counted,
					Response: tuple(port("192.0.2.1:80"), port("198.51.100.2:4711")),
					Mark:     0x200,
				},
				{
					Protocol: "icmp",
					Request:  tuple(port("192.168.1.2:0"), port("192.0.2.1:0")),
					Response: tuple(port("192.0.2.1:0"), port("192.168.1.2:0")),
				},
				{Protocol: "47"},
			}
			return all[:min(most, 2)], nil
		}, Neighbours: func(int) ([]dataplane.NetNeighbour, error) {
			return []dataplane.NetNeighbour{
				{Dev: "net0", IP: addr("192.168.1.2"), MAC: "02:00:00:00:00:02", State: "reachable"},
				{Dev: "net1", IP: addr("fd00::3"), State: "incomplete"},
			}, nil
		}},
	})
	a.look(dataplane.Network{
		Devices: []dataplane.NetDevice{
			{
				Name:     "eth0",
				MAC:      "02:00:00:00:00:01",
				Up:       true,
				Addrs:    []netip.Prefix{prefix("10.244.0.7/24"), prefix("fd00::7/64")},
				Received: 18446744073709551615,
				Sent:     2,
			},
			{Name: "lo", Loopback: true, Up: true, Addrs: []netip.Prefix{prefix("127.0.0.1/8")}},
			{
				Name:  "net0",
				MAC:   "02:00:00:00:00:02",
				Addrs: []netip.Prefix{prefix("192.168.1.254/24"), prefix("192.168.1.253/24")},
			},
			{Name: "net1", Up: true, Addrs: []netip.Prefix{prefix("198.51.100.2/24")}},
			{Name: "net2", Up: true, Addrs: []netip.Prefix{prefix("203.0.113.2/24")}},
		},
		Routes: []dataplane.NetRoute{
			{
				Table:    254,
				Type:     "unicast",
				Dst:      prefix("0.0.0.0/0"),
				Via:      addr("10.244.0.1"),
				Dev:      "eth0",
				Metric:   100,
				Protocol: 3,
				Scope:    "global",
			},
			{
				Table:    254,
				Type:     "unicast",
				Dst:      prefix("192.168.1.0/24"),
				Dev:      "net0",
				Src:      addr("192.168.1.254"),
				Protocol: 2,
				Scope:    "link",
			},
			{Table: 254, Type: "unicast", Dst: prefix("192.168.1.0/24"), Dev: "net1", Protocol: 2, Scope: "link"},
			{
				Table:    40,
				Type:     "unicast",
				Dst:      prefix("10.8.0.0/16"),
				Via:      addr("192.168.1.1"),
				Dev:      "net0",
				Protocol: 172,
				Scope:    "global",
			},
			{Table: 42, Type: "unreachable", Dst: prefix("0.0.0.0/0"), Protocol: 172, Scope: "global"},
		},
		Rules: []dataplane.NetRule{
			{Priority: 0, Table: 255},
			{Priority: 100, Not: true, Src: prefix("192.168.1.0/24"), Dst: prefix("10.8.0.0/16"), Table: 40},
			{Priority: 2002, Mark: 0x200, Mask: 0x3f00, Table: 42},
			{Priority: 2061, Mark: 0x3d00, Mask: 0x3f00},
			{Priority: 32766, Table: 254},
		},
	})
	return a
}

// Each module answers in the words and types of CNFs on OpenWrt: numbers that UCI has are text,
// lists are never null, and interfaces have the names of devices.
func TestStatusShapes(t *testing.T) {
	const uplinks = `{
		"net1": {"age":90,"online":90,"offline":0,"uptime":120,"score":9,"lost":1,"turn":1,"status":"online","enabled":true,"running":true,"up":true,
			"track_ip":[{"ip":"192.0.2.80","status":"down","latency":0,"packetloss":100},{"ip":"192.0.2.81","status":"up","latency":12.5,"packetloss":20}]},
		"net2": {"age":120,"online":120,"offline":0,"uptime":120,"score":0,"lost":0,"turn":0,"status":"online","enabled":true,"running":false,"up":true,"track_ip":[]},
		"net3": {"age":0,"online":0,"offline":0,"uptime":0,"score":0,"lost":0,"turn":0,"status":"offline","enabled":true,"running":false,"up":false,"track_ip":[]}}`
	synctest.Test(t, func(t *testing.T) {
		a := reporting()
		time.Sleep(30 * time.Second)
		tr := a.trackers[1]
		tr.since = time.Now()
		time.Sleep(90 * time.Second)
		tr.Reliability = 2
		tr.result(
			tr.begin(t.Context()),
			[]host{
				{ip: netip.MustParseAddr("192.0.2.81"), up: true, lost: 20, latency: 12500 * time.Microsecond},
				{ip: netip.MustParseAddr("192.0.2.80"), lost: 100},
			},
		)
		for module, want := range map[string]string{
			"interface": `[
				{"name":"eth0","ip_address":["10.244.0.7"],"ip6_address":["fd00::7"],"mac_address":"02:00:00:00:00:01","received_packets":"18446744073709551615","send_packets":"2","status":"UP"},
				{"name":"net0","ip_address":["192.168.1.254","192.168.1.253"],"ip6_address":[],"mac_address":"02:00:00:00:00:02","received_packets":"0","send_packets":"0","status":"DOWN"},
				{"name":"net1","ip_address":["198.51.100.2"],"ip6_address":[],"mac_address":"","received_packets":"0","send_packets":"0","status":"UP"},
				{"name":"net2","ip_address":["203.0.113.2"],"ip6_address":[],"mac_address":"","received_packets":"0","send_packets":"0","status":"UP"}]`,
			"route": `{
				"main":{"item":[
					{"destination":"default","gateway":"10.244.0.1","device":"eth0","scope":"global","proto":"3","metric":"100","src":""},
					{"destination":"192.168.1.0/24","gateway":"","device":"net0","scope":"link","proto":"2","metric":"0","src":"192.168.1.254"},
					{"destination":"192.168.1.0/24","gateway":"","device":"net1","scope":"link","proto":"2","metric":"0","src":""}]},
				"cnf":{"item":[{"destination":"10.8.0.0/16","gateway":"192.168.1.1","device":"net0","scope":"global","proto":"172","metric":"0","src":""}]},
				"42":{"item":[{"destination":"default","gateway":"","device":"","scope":"global","proto":"172","metric":"0","src":""}]}}`,
			"rule": `[
				{"prio":"0","src":"all","dst":"","fwmark":"","table":"local","not":"false"},
				{"prio":"100","src":"192.168.1.0/24","dst":"10.8.0.0/16","fwmark":"","table":"cnf","not":"true"},
				{"prio":"2002","src":"all","dst":"","fwmark":"0x200/0x3f00","table":"42","not":"false"},
				{"prio":"2061","src":"all","dst":"","fwmark":"0x3d00/0x3f00","table":"","not":"false"},
				{"prio":"32766","src":"all","dst":"","fwmark":"","table":"main","not":"false"}]`,
			"conntrack": `[
				{"protocol":"tcp","state":"ESTABLISHED","request":{"src":"192.168.1.2:4711","dst":"192.0.2.1:80","packets":5,"bytes":420},"response":{"src":"192.0.2.1:80","dst":"198.51.100.2:4711"}},
				{"protocol":"icmp","request":{"src":"192.168.1.2","dst":"192.0.2.1"},"response":{"src":"192.0.2.1","dst":"192.168.1.2"}}]`,
			"wan": `{"interfaces":` + uplinks + `,"connected":{"ipv4":["192.168.1.0/24"],"ipv6":[]},
				"policies":{"ipv4":{"both":[{"interface":"net1","percent":67},{"interface":"net2","percent":33}]},"ipv6":{}}}`,
			"interface_status": `{"interfaces":` + uplinks + `,"connected":{"ipv4":["192.168.1.0/24"]}}`,
			"neighbour": `[
				{"ip":"192.168.1.2","mac":"02:00:00:00:00:02","device":"net0","state":"reachable"},
				{"ip":"fd00::3","mac":"","device":"net1","state":"incomplete"}]`,
			"ipsec": `{"InitConnection":"success","details":[],"remotes":[]}`,
		} {
			got, err := a.Status(t.Context(), module)
			require.NoError(t, err, module)
			b, err := json.Marshal(got)
			require.NoError(t, err, module)
			require.JSONEq(t, want, string(b), module)
		}
		_, err := a.Status(t.Context(), "dhcp")
		require.ErrorContains(t, err, "no such module: dhcp")
	})
}

// A CNF that has just started answers with empty lists, not with null, and one that cannot read its
// connections with an error.
func TestStatusOfNothing(t *testing.T) {
	var broken error
	a := New(Options{Config: func() rest.Config { return rest.Config{} }, Kernel: Kernel{
		Connections: func(int) ([]dataplane.Connection, error) { return nil, broken },
		Neighbours:  func(int) ([]dataplane.NetNeighbour, error) { return nil, broken },
	}})
	for module, want := range map[string]string{
		"interface":        `[]`,
		"route":            `{}`,
		"rule":             `[]`,
		"conntrack":        `[]`,
		"neighbour":        `[]`,
		"ipsec":            `{"InitConnection":"success","details":[],"remotes":[]}`,
		"wan":              `{"interfaces":{},"connected":{"ipv4":[],"ipv6":[]},"policies":{"ipv4":{},"ipv6":{}}}`,
		"interface_status": `{"interfaces":{},"connected":{"ipv4":[]}}`,
	} {
		got, err := a.Status(t.Context(), module)
		require.NoError(t, err, module)
		b, err := json.Marshal(got)
		require.NoError(t, err, module)
		require.JSONEq(t, want, string(b), module)
	}
	broken = errors.New("no netlink")
	for _, module := range []string{"conntrack", "neighbour"} {
		_, err := a.Status(t.Context(), module)
		require.ErrorIs(t, err, broken)
	}
}

// What the planner leaves out, and that the kernel refuses a plan, is in the status. What the
// kernel says is not: it may quote secrets.
func TestStatusOfEffect(t *testing.T) {
	config := rest.Config{Awaiting: true}
	a := New(Options{Log: slog.New(slog.DiscardHandler), Config: func() rest.Config { return config }})
	effect := func() string {
		got, err := a.Status(t.Context(), "effect")
		require.NoError(t, err)
		b, err := json.Marshal(got)
		require.NoError(t, err)
		return string(b)
	}
	require.JSONEq(t, `{"applied":false,"awaiting":true,"no_effect":[],"no_effect_count":0}`, effect(),
		"nothing was planned yet")
	a.result(nil, nil)
	config.Awaiting = false
	require.JSONEq(t, `{"applied":true,"awaiting":false,"no_effect":[],"no_effect_count":0}`, effect())
	a.result(cnf.Report{{Collection: "firewall/rules", Name: "r", Message: "it matches nothing"}},
		errors.New("the key is se-cret"))
	require.JSONEq(t,
		`{"applied":false,"awaiting":false,"no_effect":[{"collection":"firewall/rules","name":"r","reason":"it matches nothing"}],"no_effect_count":1}`,
		effect())
	a.result(make(cnf.Report, 1000), nil)
	require.Contains(t, effect(), `"no_effect_count":1000`)
	require.Less(t, len(effect()), 24<<10)
	var many cnf.Report
	for range 100 {
		many = append(many,
			cnf.Line{Collection: "firewall/rules", Name: "rule", Message: "the network lan is none of this pod's"})
	}
	a.result(many, nil)
	require.Equal(t, 100, strings.Count(effect(), "none of this pod's"), "so many mistakes are all listed")
}

// The report waits until the kernel holds the last change, or for a limited time; objects without
// effect come before settings without effect.
func TestEffectOfTheLastChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := New(Options{Log: slog.New(slog.DiscardHandler), Config: func() rest.Config { return rest.Config{} }})
		a.result(nil, nil)
		effect := func() effectStatus {
			got, err := a.Status(t.Context(), "effect")
			require.NoError(t, err)
			return got.(effectStatus)
		}
		require.True(t, effect().Applied)
		a.Changed()
		start := time.Now()
		require.False(t, effect().Applied, "no pass has seen the change")
		require.Equal(t, settleTime, time.Since(start))
		go func() {
			time.Sleep(time.Second)
			a.end(0) // of a pass that began before the change
			time.Sleep(time.Second)
			a.result(cnf.Report{{Name: "minor", Minor: true}, {Name: "wrong"}}, nil)
			a.end(1)
		}()
		start = time.Now()
		got := effect()
		require.True(t, got.Applied)
		require.Equal(t, 2*time.Second, time.Since(start))
		require.Equal(t, []ineffectiveStatus{{Name: "wrong"}, {Name: "minor", Minor: true}}, got.Ineffective)
		a.result(nil, errors.New("no nftables"))
		require.False(t, effect().Applied)
	})
}
