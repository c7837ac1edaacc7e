//go:build linux

package link

import (
	"fmt"
	"net"
	"os"
	"testing"

	"subctl/dataplane"
	"subctl/internal/nstest"

	"github.com/stretchr/testify/require"
	vnl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Nobody, devices of the kernel, and programs have a port. The program of another process
// namespace, such as one of the node, has a user ID.
func TestPortOwner(t *testing.T) {
	ns := nstest.New(t, "node")
	var d *Devices
	ns.Do(func() {
		handle, err := vnl.NewHandle(unix.NETLINK_ROUTE)
		require.NoError(t, err)
		t.Cleanup(handle.Close)
		d = New(Config{Owner: dataplane.GatewayOwner, Handle: handle})
	})
	owner := func(port int) (text string) {
		ns.Do(func() { text = d.portOwner(port) })
		return text
	}
	require.Empty(t, owner(dataplane.VXLANPort))
	ns.Run(fmt.Sprintf("ip link add %s type vxlan id 1000 local 192.0.2.1 dstport %d && ip link set %[1]s up",
		dataplane.VXLANDevice, dataplane.VXLANPort))
	require.Equal(t, "the vxlan device "+dataplane.VXLANDevice, owner(dataplane.VXLANPort))
	ns.Do(func() {
		l, err := net.ListenUDP("udp6", &net.UDPAddr{Port: 4777})
		require.NoError(t, err)
		t.Cleanup(func() { l.Close() })
	})
	require.Contains(t, owner(4777), fmt.Sprintf("(pid %d)", os.Getpid()))

	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	ns.Do(func() {
		elsewhere, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		require.NoError(t, err)
		require.NoError(t, unix.Bind(elsewhere, &unix.SockaddrInet4{Port: 4778}))
		require.NoError(t, unix.Fchown(elsewhere, 1234, 1234))
		// under way, no process has it open
		require.NoError(t, unix.Sendmsg(fds[0], []byte("x"), unix.UnixRights(elsewhere), nil, 0))
		require.NoError(t, unix.Close(elsewhere))
	})
	require.Equal(t, `a program of user ID 1234 outside this pod (on the node, "ss -lunp 'sport = :4778'" names it)`,
		owner(4778))
}

// A program of another process namespace has no name here.
func TestHolderUnknown(t *testing.T) {
	pid, _ := holder(t.TempDir(), "4711")
	require.Zero(t, pid)
}
