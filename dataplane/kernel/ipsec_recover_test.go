//go:build linux

package kernel

import (
	"context"
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
		ended, killed := a.ns.Ping(50, "-I 10.1.0.1 10.2.0.1"), pid(t, e)
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
