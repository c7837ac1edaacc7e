package ipsec

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"subctl/dataplane"
	"subctl/internal/measure"
	"subctl/internal/nstest"
)

// BenchmarkThroughput compares throughput between pods on two gateways through our cable
// with the same strongSwan set up by hand over the same path: no plan, none of our chains,
// and routes as charon makes them. Connection tracking, which every node of a cluster has,
// is there in both cases. Both are measured in turns in the same namespaces, and on one
// CPU, charon included: on several, where packets happen to be handled makes more of a
// difference than what is compared, which is what a packet costs. The figure is the ratio
// of the better quartiles: what disturbs a measurement only ever makes it worse.
//
// A cable that has just come up is looked after by our agent more often than later, which
// takes CPU time of the moment and is not what a packet costs: both are left alone before.
//
// The two charons must be alike in having a session of their own or not: outside of
// control groups the kernel shares out CPU time between sessions (sched(7), "The autogroup
// feature"), and in userspace ESP that alone makes a factor of two.
func BenchmarkThroughput(b *testing.B) {
	east, west := gateways(b)
	from, to := pod(b, east), pod(b, west)
	for _, ns := range []*nstest.NS{east.ns, west.ns, from, to} {
		ns.Do(func() {
			var first unix.CPUSet
			first.Set(0)
			require.NoError(b, unix.SchedSetaffinity(0, &first))
		})
	}
	for b.Loop() {
		var ours, hand []float64
		for range measure.Times(11) {
			connect(b, Driver{}, east, west, nil)
			time.Sleep(settled)
			ours = append(ours, throughput(b, from, to, podIP(west)))
			east.sync(b, dataplane.State{})
			west.sync(b, dataplane.State{})
			undo := byHand(b, east, west)
			time.Sleep(settled)
			hand = append(hand, throughput(b, from, to, podIP(west)))
			undo()
		}
		engine := east.local.IPsec.Name
		measure.Record(b,
			measure.AtLeast("ipsec cable, "+engine+": throughput, of the same strongSwan by hand", 100*quartile(ours)/quartile(hand), 95, "%"),
			measure.Info("ipsec cable, "+engine+": throughput", quartile(ours)/1e9, "Gbit/s"))
	}
}

func podIP(g *gateway) string { return fmt.Sprintf("10.11%d.1.2", g.n) }

// pod joins a pod to a gateway. Its packets fit all tunnels, so that the sizes of
// segments are the same in all of them.
func pod(b *testing.B, g *gateway) *nstest.NS {
	b.Helper()
	ns := nstest.New(b, fmt.Sprintf("pod%d", g.n))
	nstest.Join(nstest.End{NS: g.ns, Dev: "pod", Addr: fmt.Sprintf("10.11%d.1.1/24", g.n)}, nstest.End{NS: ns, Dev: "eth0", Addr: podIP(g) + "/24"})
	ns.Run(fmt.Sprintf("ip link set eth0 mtu %d; ip route add default via 10.11%d.1.1", userspaceMTU, g.n))
	g.ns.Run("iptables -A FORWARD -m conntrack --ctstate INVALID -j DROP") // as kube-proxy does
	return ns
}

const (
	settled = 2 * time.Second
	// window is what the receiver of a measurement has room for, in bytes: so much less
	// than the buffers of UDP sockets and TUN devices that none overflows. TCP takes a
	// different time to get over each loss, which would be most of the difference.
	window = 64 << 10
)

// throughput is how many bits a second one TCP connection carries between pods.
func throughput(b *testing.B, from, to *nstest.NS, ip string) float64 {
	b.Helper()
	var l net.Listener
	to.Do(func() {
		var err error
		few := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
			failed := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, window) })
			return errors.Join(failed, err)
		}}
		l, err = few.Listen(b.Context(), "tcp4", ip+":0")
		require.NoError(b, err)
	})
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			defer c.Close()
			_, _ = io.Copy(io.Discard, c)
		}
	}()
	var bits float64
	from.Do(func() {
		c, err := net.DialTimeout("tcp4", l.Addr().String(), 5*time.Second)
		require.NoError(b, err)
		defer c.Close()
		chunk, sent, start := make([]byte, 1<<17), 0, time.Now()
		for time.Since(start) < 2*time.Second {
			n, err := c.Write(chunk)
			require.NoError(b, err)
			sent += n
		}
		bits = float64(8*sent) / time.Since(start).Seconds()
	})
	return bits
}

// quartile is the upper one.
func quartile(xs []float64) float64 { return slices.Sorted(slices.Values(xs))[3*len(xs)/4] }

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
func byHand(b *testing.B, east, west *gateway) (undo func()) {
	b.Helper()
	var stops []func()
	for _, pair := range [][2]*gateway{{west, east}, {east, west}} { // east begins, when west is there
		g, other := pair[0], pair[1]
		dir, plugin, action := b.TempDir(), "", "start"
		if g.local.IPsec.Name != dataplane.EngineKernel {
			plugin = g.local.IPsec.Name
		}
		if g == west {
			action = "none"
		}
		files := map[string]string{
			"strongswan.conf": fmt.Sprintf(handConf, plugin, dir),
			"swanctl.conf":    fmt.Sprintf(handConn, g.local.PrivateIP, other.local.PrivateIP, g.local.Name, other.local.Name, networks(g), networks(other), action),
		}
		for name, text := range files {
			require.NoError(b, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		}
		g.ns.Run(fmt.Sprintf("ip addr add %v/32 dev lo", g.local.Svcs[0].Addr())) // userspace ESP wants one of each network
		env := fmt.Sprintf("STRONGSWAN_CONF=%s/strongswan.conf SWANCTL_DIR=%[1]s ", dir)
		stops = append(stops, g.ns.Start(env+"exec /usr/sbin/charon-systemd"))
		require.Eventually(b, func() bool { _, err := g.ns.Try(env + "swanctl --load-all"); return err == nil }, time.Minute, 50*time.Millisecond)
	}
	require.Eventually(b, func() bool {
		_, err := east.ns.Try(fmt.Sprintf("ping -c1 -W1 -I %v %v", east.local.PodIP, west.local.PodIP))
		return err == nil
	}, time.Minute, 50*time.Millisecond)
	return func() {
		for _, stop := range stops {
			stop()
		}
		for _, g := range []*gateway{east, west} {
			g.ns.Run(fmt.Sprintf("ip addr del %v/32 dev lo", g.local.Svcs[0].Addr()))
			g.ns.Run("ip rule del lookup 220 2>/dev/null; ip route flush table 220 2>/dev/null; ip xfrm policy flush 2>/dev/null; ip xfrm state flush 2>/dev/null; true")
		}
	}
}
