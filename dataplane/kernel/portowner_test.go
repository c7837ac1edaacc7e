//go:build linux

package kernel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"subctl/dataplane"
	"subctl/internal/nstest"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Another program has the UDP port of a driver: the objects of that driver fail, with an error
// that names the program, all others are there, and the program keeps the port. When it has
// released the port, everything is there.
func TestPortInUse(t *testing.T) {
	nstest.WireGuard(t)
	a, _ := ipsecPair(t, nil)
	a.ns.Private(nstest.UAPIDir)
	t.Cleanup(func() { a.ns.Run("ip link del " + wg + " 2>/dev/null || true") })
	vxlan := dataplane.VXLAN{
		Name:  dataplane.VXLANDevice,
		MAC:   "0a:58:00:00:02:01",
		VNI:   dataplane.CableVNI,
		Local: ip("192.0.2.1"),
		Port:  dataplane.VXLANPort,
		MTU:   1450,
	}
	require.NoError(t, a.want.Add(wgDevice(), dataplane.Addr{Dev: wg, Prefix: cidr("244.18.0.2/8")}, vxlan,
		dataplane.Addr{Dev: vxlan.Name, Prefix: cidr("241.18.0.2/8")}))
	for _, c := range []struct {
		port    int
		setting string
		roots   []dataplane.Object
	}{
		{dataplane.IPsecPort, "ipsecPort", []dataplane.Object{dataplane.IKEDaemon{}}},
		{dataplane.VXLANPort, "vxlanPort", []dataplane.Object{vxlan}},
		{wgDevice().Port, "wireguardPort", []dataplane.Object{wgDevice()}},
	} {
		t.Run(c.setting, func(t *testing.T) {
			settle(t, a.ns, a.h, dataplane.State{})
			var l *net.UDPConn
			a.ns.Do(func() {
				var err error
				l, err = net.ListenUDP("udp4", &net.UDPAddr{Port: c.port})
				require.NoError(t, err)
			})
			var err error
			a.ns.Do(func() { _, err = dataplane.Sync(context.Background(), a.h, a.want) })
			var d *dataplane.DriftError
			require.ErrorAs(t, err, &d)
			t.Log(err)
			name, readErr := os.ReadFile("/proc/self/comm")
			require.NoError(t, readErr)
			require.ErrorContains(
				t,
				err,
				fmt.Sprintf("UDP port %d is in use by %s (pid %d): stop that one, or set another %s for this cluster",
					c.port, strings.TrimSpace(string(name)), os.Getpid(), c.setting),
			)
			for k, o := range a.want {
				failed := k == c.roots[0].Key()
				for _, need := range o.Needs() {
					failed = failed || need == c.roots[0].Key() || d.Affected[need] != nil
				}
				require.Equal(t, failed, d.Affected[k] != nil, "%v: %v", k, err)
			}
			require.NoError(t, l.Close())
			require.Eventually(t, func() bool { // what fails slowly is not tried again at once
				a.ns.Do(func() { _, err = dataplane.Sync(context.Background(), a.h, a.want) })
				return err == nil
			}, 60*time.Second, 100*time.Millisecond)
		})
	}
}

// Nobody, devices of the kernel, and programs have a port. The program of another process
// namespace, such as one of the node, has a user ID.
func TestPortOwner(t *testing.T) {
	ns, h := node(t, dataplane.GatewayOwner)
	owner := func(port int) (text string) {
		ns.Do(func() { text = h.portOwner(port) })
		return text
	}
	require.Empty(t, owner(dataplane.VXLANPort))
	settle(
		t,
		ns,
		h,
		state(
			t,
			dataplane.VXLAN{
				Name:  dataplane.VXLANDevice,
				MAC:   "0a:58:ac:12:00:02",
				VNI:   1000,
				Local: ip("172.18.0.2"),
				Port:  dataplane.VXLANPort,
				MTU:   1450,
			},
		),
	)
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

// What has failed slowly is not tried again at once; something else in its place is.
func TestPatience(t *testing.T) {
	tries := &slowStore{}
	h := &Host{byKind: map[dataplane.Kind]store{dataplane.KindRule: tries}, setbacks: map[dataplane.Key]setback{}}
	want := dataplane.Rule{Priority: 1, Table: 1}
	require.ErrorIs(t, h.try(nil, want), errSlow)
	require.ErrorIs(t, h.try(nil, want), errSlow)
	require.Equal(t, 1, tries.n)
	other := want
	other.Table++
	require.ErrorIs(t, h.try(nil, other), errSlow)
	require.Equal(t, 2, tries.n)
	s := h.setbacks[want.Key()]
	s.until = time.Now()
	h.setbacks[want.Key()] = s
	require.ErrorIs(t, h.try(nil, other), errSlow)
	require.Equal(t, 3, tries.n, "it is later now")
}

var errSlow = errors.New("slow")

type slowStore struct {
	store
	n int
}

func (s *slowStore) put(_, _ dataplane.Object) error {
	s.n++
	time.Sleep(slow)
	return errSlow
}

// A program of another process namespace has no name here.
func TestHolderUnknown(t *testing.T) {
	pid, _ := holder(t.TempDir(), "4711")
	require.Zero(t, pid)
}
