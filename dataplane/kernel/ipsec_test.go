//go:build linux

package kernel

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"subctl/dataplane"
	"subctl/internal/nstest"

	"github.com/stretchr/testify/require"
)

// Packets of every size pass in both directions, encrypted. A second sync does nothing. The
// empty state leaves nothing: no process, no file, no policy.
func TestIPsec(t *testing.T) {
	for name, change := range map[string]func(*dataplane.Tunnel){
		"plain":                nil,
		"forced encapsulation": func(t *dataplane.Tunnel) { t.Encap = true },
		"other ciphers": func(t *dataplane.Tunnel) {
			t.IKE = "aes256-sha256-ecp256"
			t.ESP = "chacha20poly1305-ecp384,aes256-sha256-ecp256"
		},
		"the other side comes to us": func(t *dataplane.Tunnel) {
			if t.LocalID == "gw1" {
				t.Remote = netip.Addr{}
				t.Initiative = dataplane.InitiateNever
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := ipsecPair(t, change)
			before := a.ns.Run(
				"ip -d link; ip -4 route show table all; ip rule; ip xfrm policy; ip xfrm state; ss -lun")
			begun := time.Now()
			upBoth(t, a, b)
			require.Empty(t, a.sync(), "a second sync has nothing to do")
			mac := pid(t, a)
			dir := a.h.charon.Dir()
			seen := b.ns.Watch("eth0")
			for _, size := range []int{8, 56, 1300, 1372, 1373, 1472, 4000, 30000} {
				a.ns.Run(fmt.Sprintf("ping -c1 -W2 -s%d %s 10.2.0.1", size, nstest.Pattern))
				b.ns.Run(fmt.Sprintf("ping -c1 -W2 -s%d -I 10.2.0.1 10.1.0.1", size))
			}
			require.False(t, seen().Marker, "what pods send is encrypted")
			seen = b.ns.Watch("eth0")
			a.ns.Run("ping -c1 -W2 -s56 " + nstest.Pattern + " 192.0.2.2")
			require.True(t, seen().Marker, "and a packet in clear would have been seen")
			require.NotZero(t, a.state().Rx)
			// charon reports whole seconds
			require.WithinRange(t, a.state().Handshake, begun.Add(-2*time.Second), time.Now())
			require.Empty(t, a.state().Message)

			require.NotEmpty(t, settle(t, a.ns, a.h, dataplane.State{}))
			require.Equal(t, before,
				a.ns.Run("ip -d link; ip -4 route show table all; ip rule; ip xfrm policy; ip xfrm state; ss -lun"))
			require.Empty(t, processState(mac), "no process is left")
			require.NoDirExists(t, dir)
			require.Empty(t, look(t, a.ns, a.h))
		})
	}
}

// Only the configuration of the daemon is written to a file, and it contains no key.
func TestIPsecSecrets(t *testing.T) {
	key := dataplane.Secret([]byte("subctl-secret-subctl-secret-0123"))
	a, b := ipsecPair(t, func(t *dataplane.Tunnel) { t.PSK = key })
	upBoth(t, a, b)
	info, err := os.Stat(a.h.charon.Dir())
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	files, err := os.ReadDir(a.h.charon.Dir())
	require.NoError(t, err)
	for _, f := range files {
		if !f.Type().IsRegular() {
			continue
		}
		text, err := os.ReadFile(a.h.charon.Dir() + "/" + f.Name())
		require.NoError(t, err)
		require.NotContains(t, string(text), "subctl-secret")
	}
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid(t, a)))
	require.NoError(t, err)
	require.NotContains(t, string(env), "subctl-secret")
	require.NotContains(t, a.want.String(), "subctl-secret")
	none := testTunnel(1, 2, func(t *dataplane.Tunnel) { t.PSK = dataplane.Secret{} })
	a.ns.Do(func() {
		require.ErrorContains(t, a.h.Apply(context.Background(), dataplane.Op{New: none}), "it has no key")
	})
}

// If one side has another key, both sides report that, and name the pair. With the right key
// the tunnel comes up by itself.
func TestIPsecWrongKey(t *testing.T) {
	a, b := ipsecPair(t, nil)
	wrong := b.tunnel()
	wrong.PSK = dataplane.Secret{9}
	b.plan(wrong)
	a.sync()
	b.sync()
	for _, e := range []*ipsecEnd{a, b} {
		require.Eventually(t, func() bool { return strings.Contains(e.state().Message, "AUTHENTICATION_FAILED") },
			30*time.Second, 50*time.Millisecond)
		require.Contains(t, e.state().Message, "gw1")
		require.Contains(t, e.state().Message, "gw2")
		require.False(t, e.state().Up)
	}
	b.plan(testTunnel(2, 1, nil))
	upBoth(t, a, b)
	require.Empty(t, a.state().Message)
}

// An end that knows the key of one tunnel cannot pass for the other end of another tunnel. (The
// daemon here, which is not hostile, would end the tunnel at once, as it does not know the other
// key.)
func TestHostileIPsecOtherEndsKey(t *testing.T) {
	logged := charonLog(t)
	a, b := ipsecPair(t, nil)
	own := dataplane.Secret{9}
	known := a.tunnel()
	third := testTunnel(
		1,
		3,
		func(t *dataplane.Tunnel) {
			t.Remote = ip("192.0.2.2")
			t.Initiative = dataplane.InitiateSecond
		},
	)
	known.PSK = own
	known.Remote = ip("192.0.2.9")
	a.plan(third)
	require.NoError(t, a.want.Add(known))
	a.sync()
	b.plan(testTunnel(2, 1, func(t *dataplane.Tunnel) {
		t.LocalID = "gw3"
		t.PSK = own
		t.Initiative = dataplane.InitiateFirst
	}))
	b.sync()
	require.Eventually(t, func() bool { return strings.Contains(b.state().Message, "AUTHENTICATION_FAILED") },
		30*time.Second, 50*time.Millisecond)
	require.NotContains(t, logged(), "established between", "gw2 passes for gw3")
}

// It is noticed when the other side disappears, and when it returns.
func TestIPsecDeadPeer(t *testing.T) {
	a, b := ipsecPair(t, nil)
	upBoth(t, a, b)
	b.ns.Run("ip link set eth0 down")
	require.Eventually(t, func() bool { return !a.state().Up }, 40*time.Second, 200*time.Millisecond)
	b.ns.Run("ip link set eth0 up")
	require.Eventually(t, func() bool {
		b.sync()
		_, err := a.ns.Try("ping -c1 -W1 -I 10.1.0.1 10.2.0.1")
		return err == nil
	}, 30*time.Second, 100*time.Millisecond)
}

// Transport mode encrypts the packets that it selects, and an IPsecBlock drops them while
// there are no keys. Both apply to packets of the node itself.
func TestIPsecTransport(t *testing.T) {
	nstest.Kernel(t, "esp")
	a, b := ipsecPair(t, func(t *dataplane.Tunnel) {
		t.Mode = dataplane.TransportMode
		t.Port = dataplane.VXLANIPsecPort
		t.ReqID = dataplane.VXLANIPsecNexthopID<<24 | t.ReqID&0xff
		t.LocalTS, t.RemoteTS = []netip.Prefix{
			netip.PrefixFrom(t.Local, 32),
		}, []netip.Prefix{
			netip.PrefixFrom(t.Remote, 32),
		}
	})
	before := a.ns.Run("ip xfrm policy; ip xfrm state")
	for _, e := range []*ipsecEnd{a, b} {
		require.NoError(t, e.want.Add(dataplane.IPsecBlock{From: e.tunnel().Local, Port: dataplane.VXLANIPsecPort}))
	}
	const send = `printf "` + nstest.Marker + `" | socat -u - UDP4:192.0.2.2:4504,sourceport=4504`
	block := state(t, dataplane.IPsecBlock{From: a.tunnel().Local, Port: dataplane.VXLANIPsecPort})
	settle(t, a.ns, a.h, block)
	require.Empty(t, settle(t, a.ns, a.h, block))
	seen := b.ns.Watch("eth0")
	_, err := a.ns.Try(send)
	require.Error(t, err, "blocked, and the sender is told")
	a.ns.Run("ping -c1 -W2 192.0.2.2") // so that there is a packet to see
	require.False(t, seen().Marker)
	seen = b.ns.Watch("eth0")
	a.ns.Run(send + ",bind=10.1.0.1")
	require.True(t, seen().Marker,
		"what is not the node's own traffic, such as that of a pod, is no business of ours; and it is seen")

	upBoth(t, a, b)
	b.ns.Start("exec socat -u UDP4-RECV:4504 - >/dev/null") // or an ICMP error would quote the packet, in clear
	require.Eventually(t, func() bool { return strings.Contains(b.ns.Run("ss -lun"), ":4504") }, 30*time.Second,
		20*time.Millisecond)
	seen = b.ns.Watch("eth0")
	for range 5 {
		a.ns.Run(send)
	}
	require.False(t, seen().Marker, "encrypted")
	require.NotZero(t, a.state().Tx)
	require.Equal(t, dataplane.VXLANIPsecDevice, a.state().Device)

	// What a killed charon left of it is recognized, too.
	require.NoError(t, syscall.Kill(pid(t, a), syscall.SIGKILL))
	require.Eventually(t, func() bool { n, _ := a.h.charon.Process(); return n == 0 }, 30*time.Second,
		10*time.Millisecond)
	settle(t, a.ns, a.h, dataplane.State{})
	require.Equal(t, before, a.ns.Run("ip xfrm policy; ip xfrm state"))
}
