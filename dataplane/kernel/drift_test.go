//go:build linux

package kernel

import (
	"context"
	"strings"
	"testing"
	"time"

	"subctl/dataplane"
	"subctl/internal/nstest"

	"github.com/stretchr/testify/require"
)

// watch starts watching a namespace.
func watch(t testing.TB, ns *nstest.NS, quiet time.Duration) (signals <-chan struct{}) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ns.Do(func() {
		var err error
		signals, err = Watch(ctx, quiet)
		require.NoError(t, err)
	})
	t.Cleanup(func() {
		cancel()
		for range signals { // until it is closed
		}
	})
	return signals
}

// calm waits until no signals have come for a while.
func calm(signals <-chan struct{}, while time.Duration) {
	for {
		select {
		case <-signals:
		case <-time.After(while):
			return
		}
	}
}

// news is the longest time until Watch notices a change.
const news = 3 * pollRare / 2

// Whatever another program does to our objects, Watch notices and one Sync repairs.
func TestDrift(t *testing.T) {
	ns, h := node(t, dataplane.GatewayOwner)
	want := state(t, one()...)
	settle(t, ns, h, want)
	clean := fingerprints(want)
	signals := watch(t, ns, 10*time.Millisecond)
	calm(signals, news)

	for name, damage := range map[string]string{
		"device deleted": "ip link del vxlan-tunnel",
		"device down":    "ip link set vxlan-tunnel down",
		"device that learns": "ip link del vxlan-tunnel && ip link add vxlan-tunnel address 0a:58:ac:12:00:02 mtu 1450 " +
			"type vxlan id 1000 local 172.18.0.2 dstport 4500 && ip link set vxlan-tunnel up && " +
			"echo 2 >/proc/sys/net/ipv4/conf/vxlan-tunnel/rp_filter && echo 1 >/proc/sys/net/ipv4/conf/vxlan-tunnel/forwarding",
		"MTU changed":             "ip link set vxlan-tunnel mtu 1300",
		"MAC changed":             "ip link set vxlan-tunnel address 0a:58:ac:12:00:99",
		"rp_filter changed":       "echo 1 >/proc/sys/net/ipv4/conf/vxlan-tunnel/rp_filter",
		"forwarding changed":      "echo 0 >/proc/sys/net/ipv4/conf/vxlan-tunnel/forwarding",
		"address deleted":         "ip addr del 241.18.0.2/8 dev vxlan-tunnel",
		"address added":           "ip addr add 241.18.0.77/32 dev vxlan-tunnel",
		"fdb entry deleted":       "bridge fdb del 0a:58:ac:12:00:03 dev vxlan-tunnel",
		"fdb entry changed":       "bridge fdb replace 0a:58:ac:12:00:03 dev vxlan-tunnel dst 172.18.0.9",
		"fdb entry on other port": "bridge fdb replace 0a:58:ac:12:00:03 dev vxlan-tunnel dst 172.18.0.3 port 4789",
		"fdb entries that flood": "bridge fdb append 00:00:00:00:00:00 dev vxlan-tunnel dst 172.18.0.8 && " +
			"bridge fdb append 00:00:00:00:00:00 dev vxlan-tunnel dst 172.18.0.9",
		"neighbour deleted":    "ip neigh del 241.18.0.3 dev vxlan-tunnel",
		"neighbour changed":    "ip neigh replace 241.18.0.3 lladdr 0a:58:ac:12:00:77 dev vxlan-tunnel nud permanent",
		"neighbour may expire": "ip neigh replace 241.18.0.3 lladdr 0a:58:ac:12:00:03 dev vxlan-tunnel nud reachable",
		"neighbour added":      "ip neigh replace 241.18.0.77 lladdr 0a:58:ac:12:00:77 dev vxlan-tunnel nud permanent",
		"next hop deleted":     "ip nexthop del id 0x10000001",
		"next hop changed":     "ip nexthop replace id 0x10000001 via 241.18.0.9 dev vxlan-tunnel proto 170",
		"next hop moved":       "ip nexthop replace id 0x10000001 via 172.18.0.9 dev eth0 proto 170",
		"next hop blackholes":  "ip nexthop del id 0x10000002 && ip nexthop add id 0x10000002 blackhole proto 170",
		"next hop added":       "ip nexthop add id 0x10000077 via 241.18.0.9 dev vxlan-tunnel proto 170",
		"group deleted":        "ip nexthop del id 0x1f000001",
		"group changed":        "ip nexthop replace id 0x1f000001 group 0x10000002 proto 170",
		"group turned resilient": "ip nexthop del id 0x1f000001 && " +
			"ip nexthop add id 0x1f000001 group 0x10000001/0x10000002 type resilient buckets 8 proto 170",
		"group of other buckets": "ip nexthop del id 0x1f000002 && ip nexthop add id 0x1f000002 group 0x10000001,3 " +
			"type resilient buckets 8 idle_timer 1 proto 170",
		"group of other timers": "ip nexthop replace id 0x1f000002 group 0x10000001,3 type resilient buckets 32 " +
			"idle_timer 9 proto 170",
		"group that is a hop": "ip nexthop del id 0x1f000001 && ip nexthop add id 0x1f000001 via 241.18.0.9 dev " +
			"vxlan-tunnel proto 170",
		"route deleted":        "ip route del 10.1.0.0/16 table 170171100",
		"route to other group": "ip route replace 10.1.0.0/16 table 170171100 nhid 0x1f000002 proto 170",
		"route without source": "ip route replace 10.1.0.0/16 table 170171100 nhid 0x1f000001 proto 170",
		"route to device":      "ip route replace 10.1.0.0/16 table 170171100 dev eth0 proto 170",
		"route twice":          "ip route add 10.1.0.0/16 table 170171100 nhid 0x1f000001 proto 170 metric 5",
		"route with a metric": "ip route del 10.1.0.0/16 table 170171100 && ip route add 10.1.0.0/16 table " +
			"170171100 nhid 0x1f000001 src 172.18.0.2 proto 170 metric 5",
		"route added":   "ip route add 10.77.0.0/16 table 170171100 nhid 0x1f000001 proto 170",
		"throw deleted": "ip route del throw 10.7.0.0/16 table 170171100",
		"throw with a metric": "ip route del throw 10.7.0.0/16 table 170171100 && ip route add throw 10.7.0.0/16 " +
			"table 170171100 proto 170 metric 5",
		"throw turned to a hop": "ip route del throw 10.7.0.0/16 table 170171100 && ip route add 10.7.0.0/16 table " +
			"170171100 nhid 0x1f000001 proto 170",
		"throw added":  "ip route add throw 10.77.0.0/16 table 170171100 proto 170",
		"rule deleted": "ip rule del pref 100",
		"rule changed": "ip rule del pref 100 && ip rule add pref 100 lookup 170171101 protocol 170",
		"rule restricted": "ip rule del pref 100 && ip rule add pref 100 from 10.0.0.0/8 lookup 170171100 " +
			"protocol 170",
		"rule twice":        "ip rule add pref 100 fwmark 7 lookup 170171100 protocol 170",
		"rule added":        "ip rule add pref 5000 lookup 109 protocol 170",
		"mark rule deleted": "ip rule del pref 105",
		"mark rule to another": "ip rule del pref 105 && ip rule add pref 105 fwmark 1/0x3f lookup 170171101 " +
			"protocol 170",
		"mark rule of all":    "ip rule del pref 105 && ip rule add pref 105 lookup 170171100 protocol 170",
		"mark rule of a mask": "ip rule del pref 105 && ip rule add pref 105 fwmark 1 lookup 170171100 protocol 170",
		"mark rule restricted": "ip rule del pref 105 && ip rule add pref 105 fwmark 1/0x3f iif eth0 lookup " +
			"170171100 protocol 170",
		"mark rule inverted": "ip rule del pref 105 && ip rule add pref 105 not fwmark 1/0x3f lookup 170171100 " +
			"protocol 170",
		"mark rule twice":        "ip rule add pref 105 fwmark 1/0x3f to 10.9.0.0/16 lookup 170171100 protocol 170",
		"mark rule added":        "ip rule add pref 105 fwmark 2/0x3f lookup 170171100 protocol 170",
		"chain flushed":          "iptables -t mangle -F SUBMARINER-GW-FORWARD",
		"chain deleted":          "iptables -t filter -F SUBMARINER-GW-NOHOOK && iptables -t filter -X SUBMARINER-GW-NOHOOK",
		"rule appended to chain": "iptables -t mangle -A SUBMARINER-GW-FORWARD -j DROP",
		"jump deleted":           "iptables -t mangle -D FORWARD -j SUBMARINER-GW-FORWARD",
		"jump moved down":        "iptables -t mangle -I FORWARD 1 -s 192.0.2.1 -j ACCEPT",
		"jump twice":             "iptables -t mangle -A FORWARD -j SUBMARINER-GW-FORWARD",
		"jump elsewhere":         "iptables -t mangle -A INPUT -j SUBMARINER-GW-FORWARD",
		"jump under a condition": "iptables -t mangle -R FORWARD 1 -s 192.0.2.1 -j SUBMARINER-GW-FORWARD",
		"everything nft flushed": "nft flush ruleset",
		"chain added":            "iptables -t nat -N SUBMARINER-GW-OLD && iptables -t nat -A POSTROUTING -j SUBMARINER-GW-OLD",
		"set flushed":            "ipset flush SUBMARINER-GW-REMOTE",
		"member deleted":         "ipset del SUBMARINER-GW-REMOTE 10.1.0.0/16",
		"member added":           "ipset add SUBMARINER-GW-REMOTE 10.77.0.0/16",
		"set added":              "ipset create SUBMARINER-GW-OLD hash:net && ipset add SUBMARINER-GW-OLD 10.77.0.0/16",
		"set of another type":    "ipset create SUBMARINER-GW-OLD hash:ip && ipset add SUBMARINER-GW-OLD 10.77.0.1",
		"set made of another type": "iptables -t mangle -F SUBMARINER-GW-FORWARD && ipset destroy SUBMARINER-GW-REMOTE && " +
			"ipset create SUBMARINER-GW-REMOTE hash:ip",
	} {
		t.Run(name, func(t *testing.T) {
			if strings.Contains(damage, "ipset") {
				defer calm(signals, news) // sets are counted at intervals
			}
			calm(signals, 50*time.Millisecond)
			if name == "jump moved down" {
				// the rule is not ours
				t.Cleanup(func() { ns.Run("iptables -t mangle -D FORWARD -s 192.0.2.1 -j ACCEPT") })
			}
			ns.Run(damage)
			require.NotEqual(t, clean, fingerprints(look(t, ns, h)), "Observe must see it")
			select {
			case <-signals:
			case <-time.After(10 * time.Second):
				require.Fail(t, "Watch did not notice")
			}
			require.NotEmpty(t, settle(t, ns, h, want))
			require.Equal(t, clean, fingerprints(look(t, ns, h)))
			require.Empty(t, settle(t, ns, h, want))
			require.Contains(t, ns.Run("ip -d link show vxlan-tunnel"), "nolearning", "which Observe does not tell")
		})
	}
	settle(t, ns, h, nil)
	require.Empty(t, look(t, ns, h))
}

// Changes of other programs are not signalled, and our own changes end without a signal.
func TestWatchIsQuiet(t *testing.T) {
	ns, h := node(t, dataplane.GatewayOwner)
	want := state(t, one()...)
	settle(t, ns, h, want)
	ns.Run("iptables -t mangle -N KUBE-X")
	signals := watch(t, ns, time.Millisecond)
	calm(signals, news)
	for _, others := range []string{
		"ip link add pod0 type veth peer name pod1 && ip link set pod0 up && ip link set pod1 up && ip link del pod0",
		"ip route add 10.77.0.0/16 dev eth0 && ip route add 10.77.0.0/16 dev eth0 table 99 && ip route del 10.77.0.0/16",
		"ip rule add pref 5000 lookup 99 && ip rule del pref 5000",
		"ip nexthop add id 7 via 172.18.0.1 dev eth0 && ip nexthop del id 7",
		"ip neigh add 172.18.0.9 lladdr 0a:58:ac:12:00:77 dev eth0 && ip neigh del 172.18.0.9 dev eth0",
		"iptables -t mangle -A KUBE-X -j ACCEPT && iptables -t mangle -F KUBE-X",
		"ipset create OTHER hash:net && ipset add OTHER 10.77.0.0/16 && ipset destroy OTHER",
		"echo 1 >/proc/sys/net/ipv4/conf/eth0/rp_filter",
	} {
		ns.Run(others)
		select {
		case <-signals:
			require.Fail(t, "a signal for nothing", others)
		case <-time.After(50 * time.Millisecond):
		}
	}
	select {
	case <-signals:
		require.Fail(t, "a signal for other people's sets")
	case <-time.After(news):
	}
	settle(t, ns, h, want)
	select {
	case <-signals:
		require.Fail(t, "a Sync that changes nothing must be silent")
	case <-time.After(news):
	}
}

// A storm of changes is one signal, and the channel closes in the end.
func TestWatchCoalesces(t *testing.T) {
	ns, h := node(t, dataplane.GatewayOwner)
	const quiet = 300 * time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var signals <-chan struct{}
	ns.Do(func() {
		var err error
		signals, err = Watch(ctx, quiet)
		require.NoError(t, err)
	})
	start := time.Now()
	n := 0
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range signals {
			n++
		}
	}()
	for range 20 {
		settle(t, ns, h, state(t, one()...))
		settle(t, ns, h, nil)
	}
	most := int(time.Since(start)/quiet) + 1
	cancel()
	<-done
	require.LessOrEqual(t, n, most)
	require.NotZero(t, n)
}
