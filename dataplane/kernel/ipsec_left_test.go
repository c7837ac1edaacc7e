//go:build linux

package kernel

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"subctl/dataplane"
	"subctl/dataplane/kernel/link"
	"subctl/internal/nstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// When charon is killed, the next sync finds it missing and restarts it, and its tunnels come
// up again.
func TestIPsecCharonKilled(t *testing.T) {
	a, b := ipsecPair(t, nil)
	upBoth(t, a, b)
	for _, e := range []*ipsecEnd{a, b} {
		// The kernel reports in seconds when a security association was added. If that was in
		// the second in which charon died, it cannot be distinguished from the next charon's.
		time.Sleep(1100 * time.Millisecond)
		old := pid(t, e)
		require.NoError(t, syscall.Kill(old, syscall.SIGKILL))
		require.Eventually(t, func() bool { return ended(old) }, 30*time.Second, 10*time.Millisecond)
		require.False(t, e.state().Up, "a tunnel without charon is not up")
		requireNoWrites(t, e)
		require.Contains(t, look(t, e.ns, e.h), dataplane.IKERemains{}.Key())
		require.NotContains(t, look(t, e.ns, e.h), dataplane.IKEDaemon{}.Key())
		start := time.Now()
		steps := e.sync()
		require.Regexp(t, `^\+ charon-systemd # .* debug: no$`, steps[0].String())
		require.False(t, slices.ContainsFunc(steps, func(op dataplane.Op) bool { return op.New == nil }), "%v", steps)
		require.NotEqual(t, old, pid(t, e))
		require.Equal(t, map[string]int{"charon": 1}, e.h.Restarts(), "and that is known")
		require.Empty(t, e.sync())
		require.Eventually(t, func() bool {
			_, err := a.ns.Try("ping -c1 -W1 -I 10.1.0.1 10.2.0.1")
			return err == nil && a.state().Up && b.state().Up
		}, time.Minute, 50*time.Millisecond)
		t.Logf("traffic flows %v after the repair began", time.Since(start).Round(10*time.Millisecond))
	}
	if link.IPsecEngine().Name == dataplane.EngineKernel {
		states := func() string { return a.ns.Run("ip -s xfrm state | grep -E 'proto esp|add '") }
		var steps []dataplane.Op
		if !assert.Eventually(t, func() bool {
			steps = append(steps, a.sync()...)
			return strings.Count(states(), "proto esp") <= 2
		}, 30*time.Second, 200*time.Millisecond) {
			t.Fatalf("what the old charon left, which ended before %v, is still there:\n%s", info(t, a), states())
		}
		require.NotEmpty(t, steps, "it was removed by steps of a plan")
		for _, op := range steps {
			require.Regexp(t,
				`^- ip xfrm state add src 192.0.2.[12] dst 192.0.2.[12] proto esp spi 0x[0-9a-f]+ reqid 0x12000002 # of an IKE daemon that is gone$`,
				op.String())
		}
	}
	require.NoError(t, syscall.Kill(pid(t, b), syscall.SIGKILL))
	require.Eventually(t, func() bool { n, _ := b.h.charon.Process(); return n == 0 }, 30*time.Second,
		10*time.Millisecond)
	steps := settle(t, b.ns, b.h, dataplane.State{})
	require.Contains(t, steps, dataplane.Op{Old: dataplane.IKERemains{}},
		"what is left is removed by a step of the plan")
	require.NoDirExists(t, b.h.charon.Dir())
	require.NotContains(t, b.ns.Run("ip xfrm state; ip xfrm policy; ip rule; ip link"), "ipsec",
		"an uninstall after that leaves nothing")
}

// When somebody deletes the device of the tunnels, the next sync restores it, and the
// tunnels come up again. With ESP in userspace the device is charon's own.
func TestIPsecDeviceDeleted(t *testing.T) {
	a, b := ipsecPair(t, nil)
	upBoth(t, a, b)
	a.ns.Run("ip link del " + dataplane.IPsecDevice)
	requireNoWrites(t, a)
	require.NotEmpty(t, a.sync())
	require.Empty(t, a.sync())
	require.Eventually(t, func() bool {
		_, err := a.ns.Try("ping -c1 -W1 -I 10.1.0.1 10.2.0.1")
		return err == nil && a.state().Up && b.state().Up
	}, time.Minute, 50*time.Millisecond)
}

// requireNoWrites requires that Observe changes nothing, neither in the kernel nor on the disk.
func requireNoWrites(t testing.TB, e *ipsecEnd) {
	t.Helper()
	holds := func() string {
		return e.ns.Run(
			"ip -d link; ip -4 addr; ip -4 route show table all; ip rule; ip xfrm policy; ip xfrm state; ls -l " +
				e.h.charon.Dir(),
		)
	}
	before := holds()
	require.Eventually(t, func() bool { // the kernel learns of a lost carrier up to a second later (linkwatch)
		was := before
		time.Sleep(1500 * time.Millisecond)
		before = holds()
		return before == was
	}, 30*time.Second, time.Millisecond)
	look(t, e.ns, e.h)
	require.Equal(t, before, holds())
}

// Watch signals that charon has ended, which the kernel does not report.
func TestWatchCharon(t *testing.T) {
	a, b := ipsecPair(t, nil)
	upBoth(t, a, b)
	signals := watch(t, a.ns, time.Millisecond)
	calm(signals, news)
	require.NoError(t, syscall.Kill(pid(t, a), syscall.SIGKILL))
	select {
	case <-signals:
	case <-time.After(10 * time.Second):
		require.Fail(t, "Watch did not notice")
	}
}

// info returns the time at which the daemon was started.
func info(t testing.TB, e *ipsecEnd) time.Time {
	t.Helper()
	_, started := e.h.charon.Process()
	return started
}

// Another agent adopts the daemon that it finds, and its tunnels.
func TestIPsecAdopts(t *testing.T) {
	a, b := ipsecPair(t, nil)
	upBoth(t, a, b)
	was := pid(t, a)
	group, err := syscall.Getpgid(was)
	require.NoError(t, err)
	require.Equal(t, was, group, "what ends the agent by the keyboard does not end it")
	other := &ipsecEnd{t: t, ns: a.ns, h: host(t, a.ns, dataplane.GatewayOwner), want: a.want}
	require.Len(t, look(t, a.ns, other.h), len(a.want))
	require.False(t, other.h.charon.Negotiating(), "a look changes nothing")
	steps := other.sync()
	require.Len(t, steps, 1)
	require.Regexp(t, `^\+ charon-systemd .*: adopts the one that runs$`, steps[0].String())
	require.Empty(t, other.sync())
	require.True(t, other.h.charon.Negotiating())
	require.Equal(t, was, pid(t, other))
	require.True(t, other.state().Up)
}

// The policies and security associations of other programs stay, whatever becomes of ours.
func TestIPsecForeign(t *testing.T) {
	if e := link.IPsecEngine(); e.Name != dataplane.EngineKernel {
		nstest.Kernel(t, "esp")
	}
	a, b := ipsecPair(t, nil)
	a.ns.Run(
		"ip xfrm policy add src 10.9.0.0/24 dst 10.8.0.0/24 dir out tmpl src 192.0.2.1 dst 192.0.2.9 proto esp reqid 1 mode tunnel")
	a.ns.Run("ip xfrm policy add src 10.1.0.0/24 dst 10.2.0.0/24 dir out action block priority 5 if_id 7")
	sa := func(settings string) {
		a.ns.Run(
			"ip xfrm state add src 192.0.2.1 dst 192.0.2.9 proto esp " + settings + " aead 'rfc4106(gcm(aes))' 0x" +
				strings.Repeat("00", 20) + " 128",
		)
	}
	sa("spi 0x99 reqid 1 mode tunnel")
	// Numbers of ours that another program may use, too.
	reqid := fmt.Sprintf("reqid %#x", a.tunnel().ReqID)
	a.ns.Run(
		"ip xfrm policy add src 10.9.0.0/24 dst 10.7.0.0/24 dir out tmpl src 192.0.2.1 dst 192.0.2.9 proto esp mode tunnel " +
			reqid,
	)
	a.ns.Run(
		"ip xfrm policy add src 192.0.2.1 dst 192.0.2.9 proto 17 sport 1701 dport 1701 dir out tmpl proto esp mode transport reqid 0x14000009")
	sa("spi 0x98 mode tunnel " + reqid)
	sa("spi 0x97 mode transport reqid 0x14000009")
	foreign := func() string { return a.ns.Run("ip xfrm policy; ip xfrm state") }
	before := foreign()
	upBoth(t, a, b)
	a.ns.Run("ping -c1 -W2 -I 10.1.0.1 10.2.0.1")
	require.NoError(t, syscall.Kill(pid(t, a), syscall.SIGKILL))
	require.Eventually(t, func() bool { n, _ := a.h.charon.Process(); return n == 0 }, 30*time.Second,
		10*time.Millisecond)
	requireNoWrites(t, a)
	kinds := map[string]int{}
	for _, op := range settle(t, a.ns, a.h, dataplane.State{}) {
		kinds[fmt.Sprintf("%T", op.Old)]++
	}
	require.Equal(t, []int{3, 1}, []int{kinds["dataplane.IPsecPolicy"], kinds["dataplane.IKERemains"]},
		"steps of the plan")
	require.GreaterOrEqual(t, kinds["dataplane.IPsecSA"], 2, "two more if both ends initiated at once")
	require.Equal(t, before, foreign())
}

// The next agent finds and removes what charon left on the node, although the files of
// charon are gone with its pod.
func TestIPsecLeftBehind(t *testing.T) {
	a, b := ipsecPair(t, nil)
	holds := func() string {
		return a.ns.Run("ip -d link; ip -4 addr; ip -4 route show table all; ip rule; ip xfrm policy; ip xfrm state")
	}
	before := holds()
	upBoth(t, a, b)
	old := pid(t, a)
	require.NoError(t, syscall.Kill(old, syscall.SIGKILL))
	require.Eventually(t, func() bool { return ended(old) }, 30*time.Second, 10*time.Millisecond)
	require.NoError(t, os.RemoveAll(a.h.charon.Dir()))
	next := host(t, a.ns, dataplane.GatewayOwner)
	require.NotEmpty(t, settle(t, a.ns, next, dataplane.State{}))
	require.Equal(t, before, holds())
	require.Empty(t, look(t, a.ns, next))
}
