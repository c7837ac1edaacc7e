package drivers_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/cable"
	"subctl/cable/ipsec"
	"subctl/cable/vxlan"
	"subctl/cable/wireguard"
	"subctl/dataplane"
	"subctl/internal/nstest"
)

// Another program of a gateway has the port of a driver. The pair that uses the driver has no
// cable, and the reason names the program. The other pair loses no packet, neither then nor
// when the port is released and the first pair connects.
func TestTrafficPortTaken(t *testing.T) {
	for _, d := range []struct {
		driver cable.Driver
		port   int
	}{{ipsec.Driver{}, dataplane.IPsecPort}, {wireguard.Driver{}, dataplane.WireGuardPort}} {
		t.Run(d.driver.Name(), func(t *testing.T) {
			requireEngine(t, d.driver)
			router := newRouter(t, "router")
			east := newNode(t, 1, 11, router)
			west := newNode(t, 2, 11, router)
			north := newNode(t, 3, 11, router)
			here := pod(t, east)
			there := pod(t, west)
			far := pod(t, north)
			toEast := asPeer(t, east.local)
			west.join(t, vxlan.Driver{}, toEast)
			north.join(t, d.driver, toEast)

			var other *net.UDPConn
			east.ns.Do(func() {
				var err error
				other, err = net.ListenUDP("udp4", &net.UDPAddr{Port: d.port})
				require.NoError(t, err)
			})
			c := cable.Cabling{Local: east.local, Peers: []cable.Cable{
				{Peer: asPeer(t, west.local), Driver: vxlan.Driver{}}, {Peer: asPeer(t, north.local), Driver: d.driver},
			}}
			plan, links, err := cable.Plan(c)
			require.NoError(t, err)
			sync := func() (err error) {
				east.ns.Do(func() { _, err = dataplane.Sync(context.Background(), east.host, plan) })
				return err
			}
			var drift *dataplane.DriftError
			require.ErrorAs(t, sync(), &drift)
			broken, _, others := cable.Broken(plan, c.Peers, links, drift)
			require.Empty(t, others)
			require.Empty(t, broken[0])
			require.Len(t, broken[1], 1)
			require.ErrorContains(t, broken[1][0], fmt.Sprintf("UDP port %d is in use by ", d.port))
			require.ErrorContains(t, broken[1][0], fmt.Sprintf(" (pid %d)", os.Getpid()))

			nstest.Until(t, here, there)
			ended := here.NS.Ping(100, fmt.Sprintf("-I %s %s", here.IP, there.IP))
			_, err = here.NS.Try(fmt.Sprintf("ping -c1 -W1 -I %s %s", here.IP, far.IP))
			require.Error(t, err, "there is no cable to it")
			require.Error(t, sync(), "nothing has changed")
			require.NoError(t, other.Close())
			require.Eventually(t, func() bool { return sync() == nil }, time.Minute, 100*time.Millisecond)
			nstest.Until(t, here, far)
			_, lost := ended()
			require.Zero(t, lost, "the other pair does not notice")
		})
	}
}
