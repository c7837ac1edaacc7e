//go:build linux

package link

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"subctl/dataplane"
	"subctl/internal/nstest"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// The engine depends on the image, the kernel and the node, and what is missing is named.
func TestChooseEngine(t *testing.T) {
	able := func() error { return nil }
	unable := func() error { return errors.New("no ESP: not supported") }
	lacks := func(what string) dataplane.Engine { return dataplane.Engine{Missing: what} }
	const charonProgram, pluginDir = "/usr/sbin/charon-systemd", "/usr/lib/ipsec/plugins"
	const strongSwan, neither = "strongSwan is missing from the image: no ", "IPsec in the kernel (no ESP: not supported), or in userspace (no "
	byKernel := dataplane.Engine{Name: "kernel"}
	image := t.TempDir()
	for _, step := range []struct {
		add             string
		kernel, without dataplane.Engine // with ESP in the kernel, and without
	}{
		{"/etc/passwd", lacks(strongSwan + "/usr/sbin/charon-systemd"), lacks(strongSwan + "/usr/sbin/charon-systemd")},
		{
			charonProgram,
			lacks(strongSwan + pluginDir + "/libstrongswan-vici.so"),
			lacks(strongSwan + pluginDir + "/libstrongswan-vici.so"),
		},
		{
			pluginDir + "/libstrongswan-vici.so",
			lacks(strongSwan + pluginDir + "/libstrongswan-openssl.so"),
			lacks(strongSwan + pluginDir + "/libstrongswan-openssl.so"),
		},
		{
			pluginDir + "/libstrongswan-openssl.so",
			byKernel,
			lacks(neither + pluginDir + "/libstrongswan-kernel-libipsec.so)"),
		},
		{pluginDir + "/libstrongswan-kernel-libipsec.so", byKernel, lacks(neither + "/dev/net/tun)")},
		{tunFile, byKernel, dataplane.Engine{Name: "kernel-libipsec"}},
	} {
		file := filepath.Join(image, step.add)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, nil, 0o644))
		require.Equal(t, step.kernel, chooseEngine(image, able), "with %s", step.add)
		require.Equal(t, step.without, chooseEngine(image, unable), "with %s", step.add)
	}
}

// Several agents of a node probe its kernel at the same moment.
func TestProbesTogether(t *testing.T) {
	nstest.Kernel(t, "esp")
	ns := nstest.New(t, "node")
	ns.Do(func() {
		for range 50 {
			errs := make(chan error)
			fd, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
			require.NoError(t, err)
			for range 4 {
				go func() {
					runtime.LockOSThread() // and never unlocks it: the thread ends with the goroutine
					if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
						errs <- err
						return
					}
					errs <- probeESP()
				}()
			}
			for range 4 {
				err = errors.Join(err, <-errs)
			}
			require.NoError(t, errors.Join(err, unix.Close(fd)))
		}
	})
	require.NotContains(t, ns.Run("ip link; ip xfrm state"), "probe")
	require.Empty(t, ns.Run("ip xfrm state"))
}
