//go:build linux

package kernel

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"subctl/dataplane"
	"subctl/internal/nstest"

	"github.com/stretchr/testify/require"
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
