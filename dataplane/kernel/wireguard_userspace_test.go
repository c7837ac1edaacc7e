//go:build linux

package kernel

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"subctl/dataplane"
	"subctl/dataplane/kernel/link"
	"subctl/internal/nstest"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A process that is killed, or hangs, is replaced. A process that another agent started is
// adopted, and ended in the end.
func TestUserspace(t *testing.T) {
	ns, h := node(t, dataplane.GatewayOwner)
	if link.WireGuardEngine().Name == dataplane.EngineKernel {
		t.Skip("the kernel has WireGuard")
	}
	want := withPeers(t, wgDevice(), wgPeer(1, "172.18.0.3:4501", "10.1.0.0/16"))
	server := func(h *Host) (pid int) {
		ns.Do(func() { pid, _ = h.devices.Server(wg) })
		return pid
	}
	settle(t, ns, h, want)
	first := server(h)
	for name, c := range map[string]struct {
		signal unix.Signal
		state  string // of the process, as in proc_pid_stat(5); empty if it is gone
	}{"killed": {unix.SIGKILL, ""}, "hangs": {unix.SIGSTOP, "T"}} {
		t.Run(name, func(t *testing.T) {
			before := server(h)
			require.NoError(t, unix.Kill(before, c.signal))
			require.Eventually(t, func() bool { return processState(before) == c.state }, 5*time.Second,
				time.Millisecond)
			require.Len(t, settle(t, ns, h, want), len(want), "with all that stood on it")
			require.NotContains(t, []int{0, before}, server(h))
		})
	}
	require.NotEqual(t, first, server(h))
	t.Run("adopted", func(t *testing.T) {
		before := server(h)
		other := host(t, ns, dataplane.GatewayOwner)
		require.Empty(t, settle(t, ns, other, want))
		require.Equal(t, before, server(other))
		settle(t, ns, other, nil)
		require.Zero(t, server(h))
		require.Eventually(t, func() bool { return processState(before) == "" }, 5*time.Second, time.Millisecond)
	})
	t.Run("of another network namespace", func(t *testing.T) {
		ns.Start("WG_PROCESS_FOREGROUND=1 exec unshare -n wireguard-go -f " + wg)
		require.Eventually(t, func() bool { return ns.Run("ls "+nstest.UAPIDir) != "" }, 5*time.Second,
			time.Millisecond)
		require.Zero(t, server(h), "it is not ours to ask")
		var err error
		ns.Do(func() { _, err = dataplane.Sync(context.Background(), h, want) })
		require.ErrorContains(t, err, "wireguard-go ended at once")
	})
}

// processState returns the letter of proc_pid_stat(5) for a process, or "" if there is none.
func processState(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	return strings.Fields(string(b))[2]
}
