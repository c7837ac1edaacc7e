//go:build linux

package kernel

import (
	"context"
	"maps"
	"syscall"
	"testing"
	"time"

	"subctl/dataplane"

	"github.com/stretchr/testify/require"
)

// loop syncs an end whenever Watch signals, as an agent does, until the test ends.
func (e *ipsecEnd) loop() {
	ctx, cancel := context.WithCancel(context.Background())
	var signals <-chan struct{}
	e.ns.Do(func() {
		var err error
		signals, err = Watch(ctx, 200*time.Millisecond)
		require.NoError(e.t, err)
	})
	done := make(chan struct{})
	e.t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		for range signals {
			e.ns.Do(func() { _, _ = dataplane.Sync(ctx, e.h, e.want) }) // a failure is repaired by the next one
		}
	}()
}

// When charon is killed, what Watch signals is enough to have it started again, and traffic
// flows again after a short interruption.
func TestIPsecRecovers(t *testing.T) {
	a, b := ipsecPair(t, nil)
	upBoth(t, a, b)
	a.ns.Run("ping -c1 -W2 -I 10.1.0.1 10.2.0.1")
	a.loop()
	b.loop()
	for _, e := range []*ipsecEnd{a, b} {
		time.Sleep(time.Second) // security associations are told apart by the second
		ended := a.ns.Ping(50, "-I 10.1.0.1 10.2.0.1")
		killed := pid(t, e)
		require.NoError(t, syscall.Kill(killed, syscall.SIGKILL))
		require.Eventually(t, func() bool {
			now, _ := e.h.charon.Process()
			_, err := a.ns.Try("ping -c1 -W1 -I 10.1.0.1 10.2.0.1")
			return now != 0 && now != killed && err == nil
		}, 30*time.Second, 50*time.Millisecond)
		time.Sleep(time.Second) // of which packets are answered
		requireFew(t, 10*50, ended)
	}
}

// An end that is told that its tunnel has ended begins again soon, also after its charon was
// started anew. It looks for itself only every 5 seconds.
func TestIPsecEnded(t *testing.T) {
	a, b := ipsecPair(t, func(t *dataplane.Tunnel) {
		if t.Name == "to-gw1" {
			t.Initiative = dataplane.InitiateNever
		}
	})
	upBoth(t, a, b)
	without := maps.Clone(b.want)
	delete(without, b.tunnel().Key())
	for _, restart := range []bool{false, true} {
		if restart {
			time.Sleep(time.Second) // security associations are told apart by the second
			require.NoError(t, syscall.Kill(pid(t, a), syscall.SIGKILL))
			require.Eventually(t, func() bool { n, _ := a.h.charon.Process(); return n == 0 }, 30*time.Second,
				10*time.Millisecond)
			upBoth(t, a, b)
		}
		time.Sleep(time.Second) // the end that begins has seen that all is well
		settle(t, b.ns, b.h, without)
		ended := time.Now()
		require.Eventually(t, func() bool { return !a.state().Up }, 30*time.Second, 10*time.Millisecond)
		b.sync()
		require.Eventually(t, func() bool { return a.state().Up && b.state().Up }, 30*time.Second, 10*time.Millisecond)
		t.Logf("the tunnel is back after %v", time.Since(ended).Round(10*time.Millisecond))
		require.Less(t, time.Since(ended), 3*time.Second)
	}
}
