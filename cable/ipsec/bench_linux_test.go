package ipsec

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/dataplane"
	"subctl/internal/measure"
)

// BenchmarkThroughput compares a cable with the same strongSwan set up by hand: no plan, no
// chains, and routes as charon makes them. Both are measured in turns in the same
// namespaces; the figure is the ratio of the medians.
func BenchmarkThroughput(b *testing.B) {
	east, west := gateways(b)
	for b.Loop() {
		var ours, hand []float64
		for range 5 {
			connect(b, Driver{}, east, west, nil)
			ours = append(ours, throughput(b, east, west))
			east.sync(b, dataplane.State{})
			west.sync(b, dataplane.State{})
			undo := byHand(b, east, west)
			hand = append(hand, throughput(b, east, west))
			undo()
		}
		engine := east.local.IPsec.Name
		measure.Record(b,
			measure.AtLeast("ipsec cable, "+engine+": throughput, of the same strongSwan by hand", 100*median(ours)/median(hand), 95, "%"),
			measure.Info("ipsec cable, "+engine+": throughput", median(ours)/1e9, "Gbit/s"))
	}
}

// throughput is how many bits a second one TCP connection carries between pods.
func throughput(b *testing.B, from, to *gateway) float64 {
	b.Helper()
	var l net.Listener
	to.ns.Do(func() {
		var err error
		l, err = net.Listen("tcp4", to.local.PodIP.String()+":0")
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
	from.ns.Do(func() {
		d := net.Dialer{Timeout: 5 * time.Second, LocalAddr: &net.TCPAddr{IP: from.local.PodIP.AsSlice()}}
		c, err := d.Dial("tcp4", l.Addr().String())
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

func median(xs []float64) float64 { return slices.Sorted(slices.Values(xs))[len(xs)/2] }

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
        local_ts = %v/32
        remote_ts = %v/32
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
			"swanctl.conf":    fmt.Sprintf(handConn, g.local.PrivateIP, other.local.PrivateIP, g.local.Name, other.local.Name, g.local.PodIP, other.local.PodIP, action),
		}
		for name, text := range files {
			require.NoError(b, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		}
		env := fmt.Sprintf("STRONGSWAN_CONF=%s/strongswan.conf SWANCTL_DIR=%[1]s ", dir)
		stops = append(stops, g.ns.Start(env+"exec /usr/sbin/charon-systemd"))
		require.Eventually(b, func() bool { _, err := g.ns.Try(env + "swanctl --load-all"); return err == nil }, 10*time.Second, 50*time.Millisecond)
	}
	require.Eventually(b, func() bool {
		_, err := east.ns.Try(fmt.Sprintf("ping -c1 -W1 -I %v %v", east.local.PodIP, west.local.PodIP))
		return err == nil
	}, 10*time.Second, 50*time.Millisecond)
	return func() {
		for _, stop := range stops {
			stop()
		}
		for _, g := range []*gateway{east, west} {
			g.ns.Run("ip rule del lookup 220 2>/dev/null; ip route flush table 220 2>/dev/null; ip xfrm policy flush 2>/dev/null; ip xfrm state flush 2>/dev/null; true")
		}
	}
}
