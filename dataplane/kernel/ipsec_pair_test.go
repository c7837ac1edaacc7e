//go:build linux

package kernel

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"subctl/dataplane"
	"subctl/dataplane/kernel/link"
	"subctl/internal/nstest"

	"github.com/stretchr/testify/require"
)

// ipsecEnd is a gateway with a tunnel to another.
type ipsecEnd struct {
	t    testing.TB
	ns   *nstest.NS
	h    *Host
	want dataplane.State
}

// ipsecPair returns two gateways, 192.0.2.1 with 10.1.0.0/24 and 192.0.2.2 with
// 10.2.0.0/24, and their plans. Nothing is synced yet.
func ipsecPair(t testing.TB, change func(*dataplane.Tunnel)) (a, b *ipsecEnd) {
	t.Helper()
	nstest.Root(t)
	if e := link.IPsecEngine(); e.Name == "" {
		if os.Getenv(nstest.RequireRoot) == "1" {
			t.Fatalf("no IPsec: %s", e.Missing)
		}
		t.Skip("no IPsec: " + e.Missing)
	}
	ends := [2]*ipsecEnd{}
	for i := range ends {
		ends[i] = &ipsecEnd{t: t, ns: nstest.New(t, fmt.Sprintf("gw%d", i+1))}
	}
	nstest.Join(nstest.End{NS: ends[0].ns, Dev: "eth0", Addr: "192.0.2.1/24"},
		nstest.End{NS: ends[1].ns, Dev: "eth0", Addr: "192.0.2.2/24"})
	ends[0].ns.Run("ping -c1 -W10 192.0.2.2") // a device shows its carrier a little later
	for i, e := range ends {
		e.ns.Run(fmt.Sprintf("ip addr add 10.%d.0.1/24 dev lo; sysctl -qw net.ipv4.ip_forward=1", i+1))
		e.h = host(t, e.ns, dataplane.GatewayOwner)
		t.Cleanup(func() { settle(t, e.ns, e.h, dataplane.State{}) })
		e.plan(testTunnel(i+1, 2-i, change))
	}
	return ends[0], ends[1]
}

func testTunnel(own, other int, change func(*dataplane.Tunnel)) dataplane.Tunnel {
	t := dataplane.Tunnel{
		Name:       fmt.Sprintf("to-gw%d", other),
		Local:      ip(fmt.Sprintf("192.0.2.%d", own)),
		Remote:     ip(fmt.Sprintf("192.0.2.%d", other)),
		LocalPort:  dataplane.IPsecPort,
		RemotePort: dataplane.IPsecPort,
		LocalID:    fmt.Sprintf("gw%d", own),
		RemoteID:   fmt.Sprintf("gw%d", other),
		PSK:        dataplane.Secret{1, 2, 3},
		Mode:       dataplane.TunnelMode,
		LocalTS: []netip.Prefix{
			cidr(fmt.Sprintf("10.%d.0.0/24", own)),
		},
		RemoteTS:    []netip.Prefix{cidr(fmt.Sprintf("10.%d.0.0/24", other))},
		ReqID:       0x12000000 + uint32(other),
		IKE:         "aes256gcm16-prfsha384-x25519",
		ESP:         "aes128gcm16-x25519",
		IKELifetime: time.Hour,
		ESPLifetime: time.Hour,
		DPDDelay:    2 * time.Second,
		Initiative:  dataplane.InitiateFirst,
	}
	if own > other {
		t.Initiative = dataplane.InitiateSecond
	}
	if change != nil {
		change(&t)
	}
	return t
}

// plan makes a tunnel, and the objects that lead into it, the plan of the end.
func (e *ipsecEnd) plan(t dataplane.Tunnel) {
	const hop, group = 0x12000001, 0x1f000001
	e.want = state(e.t, dataplane.IKEDaemon{Port: t.LocalPort, Debug: os.Getenv("SUBCTL_IPSEC_DEBUG") != ""}, t)
	if t.Mode == dataplane.TunnelMode {
		conf := dataplane.Conf{RPFilter: 2, Forwarding: 1}
		require.NoError(e.t, e.want.Add(
			dataplane.IPsecInterface{Name: dataplane.IPsecDevice, MTU: 1400, Conf: conf},
			dataplane.Nexthop{ID: hop, Dev: dataplane.IPsecDevice},
			dataplane.Group{ID: group, Members: []dataplane.Member{{ID: hop, Weight: 1}}},
			dataplane.Route{
				Table: dataplane.CableTable,
				Dst:   t.RemoteTS[0],
				Group: group,
				Src:   t.LocalTS[0].Addr().Next(),
			},
			dataplane.Rule{Priority: dataplane.CablePriority, Table: dataplane.CableTable},
		))
	}
}

func (e *ipsecEnd) sync() []dataplane.Op { return settle(e.t, e.ns, e.h, e.want) }

// tunnel returns the planned tunnel.
func (e *ipsecEnd) tunnel() dataplane.Tunnel {
	for _, o := range e.want {
		if t, ok := o.(dataplane.Tunnel); ok {
			return t
		}
	}
	return dataplane.Tunnel{}
}

func (e *ipsecEnd) state() dataplane.CableState {
	states, err := e.h.CableStates()
	require.NoError(e.t, err)
	for _, s := range states {
		if s.Peer == e.tunnel().Name {
			return s
		}
	}
	return dataplane.CableState{}
}

// upBoth syncs both ends and waits until the tunnel is up on both.
func upBoth(t testing.TB, a, b *ipsecEnd) {
	t.Helper()
	a.sync()
	b.sync()
	require.Eventually(t, func() bool { return a.state().Up && b.state().Up }, 30*time.Second, 20*time.Millisecond,
		"%+v\n%+v", a.state(), b.state())
}

// charonLog has the daemons that start from now on log into a file, and returns what reads it.
func charonLog(t testing.TB) (logged func() string) {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	stderr := os.Stderr
	os.Stderr = log // which charon inherits
	t.Cleanup(func() {
		os.Stderr = stderr
		_ = log.Close()
	})
	return func() string {
		t.Helper()
		time.Sleep(100 * time.Millisecond) // until everything is logged
		text, err := os.ReadFile(log.Name())
		require.NoError(t, err)
		return string(text)
	}
}

func pid(t testing.TB, e *ipsecEnd) int {
	t.Helper()
	n, _ := e.h.charon.Process()
	require.NotZero(t, n, "charon runs")
	return n
}

// ended reports whether a process has ended. It may be a zombie still.
func ended(pid int) bool {
	s := processState(pid)
	return s == "" || s == "Z"
}
