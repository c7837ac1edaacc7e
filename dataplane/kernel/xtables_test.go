//go:build linux

package kernel

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"subctl/dataplane"
	"subctl/internal/nstest"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// oldIPTables makes the old iptables, which does not use nftables, the iptables of the test.
func oldIPTables(t *testing.T) {
	t.Helper()
	nstest.Root(t)
	bin := t.TempDir()
	for _, program := range []string{"", "-save", "-restore"} {
		path, err := exec.LookPath("iptables-legacy" + program)
		require.NoError(t, err, "package iptables has the old iptables, too")
		require.NoError(t, os.Symlink(path, filepath.Join(bin, "iptables"+program)))
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	if out, err := nstest.New(t, "probe").Try("iptables -t mangle -L"); err != nil {
		t.Skipf("the kernel has no old iptables: %s", out)
	}
}

// A program that never gives back the lock of iptables does not stop the agent: it waits for a
// bounded time, once for all chains, names the lock and its holder, and applies everything else.
// When the lock is free, the chains follow.
func TestHostileLock(t *testing.T) {
	const xtablesLock, lockPatience = "/run/xtables.lock", 5 // seconds
	oldIPTables(t)
	ns, h := node(t, dataplane.GatewayOwner)
	ns.Private(filepath.Dir(xtablesLock))
	var lock *os.File
	ns.Do(func() {
		var err error
		lock, err = os.OpenFile(xtablesLock, os.O_CREATE|os.O_RDWR, 0o600)
		require.NoError(t, err)
		require.NoError(t, unix.Flock(int(lock.Fd()), unix.LOCK_EX))
	})
	defer lock.Close()
	chain := func(name string) dataplane.Chain {
		return dataplane.Chain{Table: "filter", Name: name, Hook: "FORWARD", Rules: []string{"-s 192.0.2.1/32 -j DROP"}}
	}
	blackhole := dataplane.Blackhole{Table: dataplane.CableTable, Dst: cidr("10.77.0.0/16")}
	want := state(t, chain("SUBMARINER-GW-A"), chain("SUBMARINER-GW-B"), chain("SUBMARINER-GW-C"), blackhole)
	name, err := os.ReadFile("/proc/self/comm")
	require.NoError(t, err)
	ns.Do(func() {
		began := time.Now()
		_, err := dataplane.Sync(context.Background(), h, want)
		require.ErrorContains(
			t,
			err,
			fmt.Sprintf("%.*s (pid %d) holds the lock of iptables, /run/xtables.lock, for more than 5 s", len(name)-1,
				name, os.Getpid()),
		)
		require.GreaterOrEqual(t, time.Since(began), lockPatience*time.Second)
		require.Less(t, time.Since(began), 3*lockPatience*time.Second, "it waits once, not for each chain")
	})
	held := look(t, ns, h)
	require.Equal(t, blackhole, held[blackhole.Key()], "everything else is applied")
	require.NotContains(t, held, chain("SUBMARINER-GW-A").Key())

	require.NoError(t, unix.Flock(int(lock.Fd()), unix.LOCK_UN))
	ns.Do(func() {
		for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Second) {
			if _, err := dataplane.Sync(context.Background(), h, want); err == nil {
				return
			}
			require.True(t, time.Now().Before(deadline), "the chains do not follow")
		}
	})
	require.Contains(t, look(t, ns, h), chain("SUBMARINER-GW-C").Key())
}
