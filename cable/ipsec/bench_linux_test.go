package ipsec

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/dataplane"
	"subctl/internal/measure"
	"subctl/internal/nstest"
)

// BenchmarkThroughput compares throughput between pods on two gateways through our cable
// with the same strongSwan set up by hand over the same path: no plan, none of our chains,
// and routes as charon makes them. Connection tracking, which every node of a cluster has,
// is there in both cases. Both paths exist at the same time, in namespaces of their own, so
// that they can be measured in turns.
//
// The charons must be alike in whether they have a session of their own: outside of
// control groups the kernel shares out CPU time between sessions (sched(7), "The autogroup
// feature"), and with userspace ESP that alone makes a factor of two.
func BenchmarkThroughput(b *testing.B) {
	east, west, ours := path(b)
	connect(b, Driver{}, east, west, nil)
	handEast, handWest, hand := path(b)
	byHand(b, handEast, handWest)
	time.Sleep(settled)
	for b.Loop() {
		c := measure.Compare(measure.Times(150), func() float64 { return ours.Throughput(b) },
			func() float64 { return hand.Throughput(b) })
		engine := east.local.IPsec.Name
		measure.Record(b,
			measure.AtLeast("ipsec cable, "+engine+": throughput, of the same strongSwan by hand", c.Percent, 95, "%"),
			measure.Info("ipsec cable, "+engine+": throughput", c.Ours.Per(1e9), "Gbit/s"))
	}
}

// path makes two gateways, and a path between pods on them, which are not connected yet.
func path(b *testing.B) (east, west *gateway, p measure.Path) {
	east, west = gateways(b)
	from := pod(b, east)
	to := pod(b, west)
	measure.OneCPU(b, east.ns, west.ns, from, to) // before charon starts
	return east, west, measure.Path{
		From: nstest.Host{NS: from, IP: podIP(east)}, To: nstest.Host{NS: to, IP: podIP(west)},
		Between: []*nstest.NS{east.ns, west.ns}, Window: window,
	}
}

func podIP(g *gateway) string { return fmt.Sprintf("10.11%d.1.2", g.n) }

// pod joins a pod to a gateway. Its packets fit all tunnels, so that the sizes of
// segments are the same in all of them.
func pod(b *testing.B, g *gateway) *nstest.NS {
	b.Helper()
	ns := nstest.New(b, fmt.Sprintf("pod%d", g.n))
	nstest.Join(nstest.End{NS: g.ns, Dev: "pod", Addr: fmt.Sprintf("10.11%d.1.1/24", g.n)},
		nstest.End{NS: ns, Dev: "eth0", Addr: podIP(g) + "/24"})
	ns.Run(fmt.Sprintf("ip link set eth0 mtu %d; ip route add default via 10.11%d.1.1", userspaceMTU, g.n))
	g.ns.Run("iptables -A FORWARD -m conntrack --ctstate INVALID -j DROP") // as kube-proxy does
	return ns
}

const (
	// settled is when nothing of a new cable is still being negotiated or polled for.
	settled = 2 * time.Second
	// window is far below the size of the buffers of UDP sockets and TUN devices, so that
	// none overflows: TCP takes a different time to recover from each loss, which
	// would be most of the difference.
	window = 64 << 10
)

const handConf = `charon-systemd {
  load = random nonce openssl kdf socket-default %s kernel-netlink vici
  filelog {
    stderr {
      default = -1
    }
  }
  journal {
    default = -1
  }
  plugins {
    vici {
      socket = unix://%s/vici
    }
  }
}
swanctl {
  socket = unix://%[2]s/vici
}
`

const handConn = `connections {
  hand {
    version = 2
    local_addrs = %v
    remote_addrs = %v
    proposals = aes256gcm16-prfsha384-x25519
    local {
      auth = psk
      id = %s
    }
    remote {
      auth = psk
      id = %s
    }
    children {
      hand {
        local_ts = %v
        remote_ts = %v
        esp_proposals = aes128gcm16-x25519
        start_action = %s
      }
    }
  }
}
secrets {
  ike {
    secret = "only for this benchmark"
  }
}
`

func networks(g *gateway) string { return fmt.Sprintf("%v, %v", g.local.Svcs[0], g.local.Pods[0]) }

// byHand connects two gateways as a person would.
func byHand(b *testing.B, east, west *gateway) {
	b.Helper()
	for _, pair := range [][2]*gateway{{west, east}, {east, west}} { // east begins, when west is there
		g := pair[0]
		other := pair[1]
		dir := b.TempDir()
		plugin := ""
		action := "start"
		if g.local.IPsec.Name != dataplane.EngineKernel {
			plugin = g.local.IPsec.Name
		}
		if g == west {
			action = "none"
		}
		files := map[string]string{
			"strongswan.conf": fmt.Sprintf(handConf, plugin, dir),
			"swanctl.conf": fmt.Sprintf(handConn, g.local.PrivateIP, other.local.PrivateIP, g.local.Name,
				other.local.Name, networks(g), networks(other), action),
		}
		for name, text := range files {
			require.NoError(b, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		}
		// userspace ESP wants one of each network
		g.ns.Run(fmt.Sprintf("ip addr add %v/32 dev lo", g.local.Svcs[0].Addr()))
		env := fmt.Sprintf("STRONGSWAN_CONF=%s/strongswan.conf SWANCTL_DIR=%[1]s ", dir)
		g.ns.Start(env + "exec /usr/sbin/charon-systemd")
		require.Eventually(b, func() bool { _, err := g.ns.Try(env + "swanctl --load-all"); return err == nil },
			time.Minute, 50*time.Millisecond)
	}
	require.Eventually(b, func() bool {
		_, err := east.ns.Try(fmt.Sprintf("ping -c1 -W1 -I %v %v", east.local.PodIP, west.local.PodIP))
		return err == nil
	}, time.Minute, 50*time.Millisecond)
}
