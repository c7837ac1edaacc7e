package agent

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"subctl/agent/parts"
	"subctl/agent/probe"
	"subctl/agent/role"
	"subctl/agent/roles"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
	"subctl/cable/drivers"
	"subctl/dataplane"
	kernelprobe "subctl/dataplane/kernel/probe"
	"subctl/internal/nstest"
)

// agents are agents that probe, and follow what their probes find.
type agents struct {
	t         *testing.T
	triggered chan *watcher
	ignored   atomic.Int64 // answers to probes
	downs     atomic.Int64 // how often a target was found to be down
	stops     []func()
	all       []*watcher
}

// watcher is one agent of a node.
type watcher struct {
	*agents
	s      *side
	node   string
	role   role.Role
	others []*side
	part   manager.Runnable
	found  map[string]role.Health // when the node followed last
}

// start starts the probes of an agent, with the plan of the last sync.
func (a *agents) start(s *side, node string, agentRole role.Role, others ...*side) *watcher {
	t := a.t
	t.Helper()
	w := &watcher{agents: a, s: s, node: node, role: agentRole, others: others}
	made, err := parts.New([]role.Part{role.Probing}, parts.Options{
		Log:     slog.New(slog.DiscardHandler),
		Trigger: func() { a.triggered <- w },
		Reroute: func() { a.downs.Add(1) },
		Ignored: func() { a.ignored.Add(1) },
		NewArrivals: func(conn syscall.Conn, size int) (probe.Arrivals, error) {
			return kernelprobe.NewArrivals(conn, size)
		},
		ListenEchoes: func(ctx context.Context, port, size int) (probe.Echoes, error) {
			return kernelprobe.ListenEchoes(ctx, port, size)
		},
	})
	require.NoError(t, err)
	w.part = made[0]
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	w.act()
	go func() {
		runtime.LockOSThread() // never unlocked, as the thread is in the namespace
		ns, err := os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", s.nodes[node].Tid()))
		if err == nil {
			err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
			ns.Close()
		}
		if err == nil {
			err = w.part.Start(ctx)
		}
		stopped <- err
	}()
	a.all = append(a.all, w)
	a.stops = append(a.stops, sync.OnceFunc(func() {
		stop()
		require.NoError(t, <-stopped)
	}))
	t.Cleanup(a.stops[len(a.stops)-1])
	return w
}

// act gives the plan of the last sync to the probes.
func (w *watcher) act() {
	w.part.(parts.Actor).Act(role.Snapshot{}, w.s.plans[[2]string{w.node, w.role.Name}], &role.Outcome{})
}

// health returns what the probes have found.
func (w *watcher) health() map[string]role.Health {
	var snap role.Snapshot
	require.NoError(w.t, w.part.(parts.Observer).Observe(&snap))
	return snap.Health
}

// learn notes what the probes have found, and keeps what the node's other agent has found.
func (w *watcher) learn() {
	w.found = w.health()
	node := map[string]role.Health{}
	for _, agent := range w.all {
		if agent.s == w.s && agent.node == w.node {
			maps.Copy(node, agent.found)
		}
	}
	w.s.health[w.node] = node
}

// follow syncs the nodes of agents whose probes find something new, until done.
func (a *agents) follow(done func() bool, within time.Duration) (in time.Duration) {
	a.t.Helper()
	start := time.Now()
	for !done() {
		select {
		case w := <-a.triggered:
			found := time.Now()
			w.learn()
			w.s.syncOne(a.t, w.node, w.role, w.others...)
			w.act()
			if took := time.Since(found); took > 50*time.Millisecond {
				a.t.Logf("%s of %s %s: the node took %v", w.role.Name, w.s.id, w.node, took)
			}
		case <-time.After(min(10*time.Millisecond, within-time.Since(start))):
			require.Less(a.t, time.Since(start), within, "too late")
		}
	}
	return time.Since(start)
}

// await follows until a probe has a status, and the node has followed.
func (w *watcher) await(
	name string,
	want submarinerv1.ConnectionStatus,
	within time.Duration,
) (h role.Health, took time.Duration) {
	w.t.Helper()
	took = w.follow(func() bool {
		h = w.health()[name]
		return h.Status == want && w.s.health[w.node][name].Status == want
	}, within)
	w.t.Logf("%s: %s %v after %v: %s", w.node, name, want, took, h.Message)
	return h, took
}

// watchBoth starts all agents of two clusters with two gateways each, and waits until echoes come
// back. It also returns the watchers of the nodes gw and worker of the first cluster.
func watchBoth(t *testing.T, east, west *side) (all *agents, gw, worker *watcher) {
	t.Helper()
	all = &agents{t: t, triggered: make(chan *watcher, 100)}
	for _, s := range []*side{west, east} {
		other := map[*side]*side{east: west, west: east}[s]
		for _, name := range s.names {
			worker = all.start(s, name, roles.Route(), other)
		}
		all.start(s, "gw2", roles.Gateway(), other)
		gw = all.start(s, "gw", roles.Gateway(), other)
	}
	for i := range 2 {
		gw.await(west.cableOf(i)+" over vxlan-tunnel", submarinerv1.Connected, 10*time.Second)
		worker.await("gateway/"+east.names[i], submarinerv1.Connected, 10*time.Second)
	}
	time.Sleep(time.Second)
	return all, gw, worker
}

// A gateway finds out within a second that a remote gateway, or the way to it, does not carry
// packets, although both kernels answer: its flows move to the other gateway, and move back later.
// A gateway whose agent is dead stays.
func TestGreyFailures(t *testing.T) {
	fabric := newFabric(t)
	east := twoGateways(t, fabric, 1, "east")
	west := twoGateways(t, fabric, 2, "west")
	east.sync(t, west)
	west.sync(t, east)
	all, gw, worker := watchBoth(t, east, west)
	const drops = "nft -f - <<X\n table ip broken {\n chain x { type filter hook %s priority -150; %s\n }\n }\nX"
	over := func(i int) string { return west.cableOf(i) + " over vxlan-tunnel" }
	for name, test := range map[string]struct {
		by      *watcher
		probe   string
		at      *nstest.NS
		fault   string
		message string
	}{
		"forward drops": {
			gw,
			over(0),
			west.nodes["gw"],
			fmt.Sprintf(drops, "forward", "drop"),
			"gateway gw of cluster west answers pings, but forwards no packets",
		},
		"forward drops at the own gateway": {
			worker,
			"gateway/gw2",
			east.nodes["gw2"],
			fmt.Sprintf(drops, "forward", "drop"),
			"it answers pings, but forwards no packets",
		},
		"first packets of connections are dropped": {
			gw,
			over(0),
			west.nodes["gw"],
			fmt.Sprintf(drops, "forward", "ct state new drop"),
			"answers pings, but forwards no packets, or none of new connections",
		},
		"large packets are dropped": {
			gw,
			over(1),
			fabric,
			fmt.Sprintf(drops, "forward", "ip daddr 172.18.2.12 udp dport 4502 meta length > 1400 drop"),
			"packets of 1450 bytes",
		},
		"large packets are dropped before the own gateway": {
			worker,
			"gateway/gw",
			east.nodes["gw"],
			fmt.Sprintf(drops, "input", "udp dport 4800 meta length > 1400 drop"),
			"packets of 1450 bytes",
		},
		"one direction is cut": {
			gw,
			over(0),
			fabric,
			fmt.Sprintf(drops, "forward", "ip saddr 172.18.2.11 ip daddr 172.18.1.11 drop"),
			"gateway gw of cluster west answers neither echoes nor pings",
		},
	} {
		t.Run(name, func(t *testing.T) {
			test.at.Run(test.fault)
			repair := sync.OnceFunc(func() { test.at.Run("nft delete table ip broken") })
			defer repair()
			h, _ := test.by.await(test.probe, submarinerv1.ConnectionError, 5*time.Second)
			require.Contains(t, h.Message, test.message)
			require.WithinDuration(t, time.Now(), h.Since, 5*time.Second)
			wait := time.Now().Add(time.Second)
			all.follow(func() bool { return time.Now().After(wait) }, time.Minute) // other agents find out, too
			for _, from := range east.names {
				if east.nodes[from] != test.at { // its own pods have no other way
					reach(t, east, from, west, "worker")
				}
			}
			repair()
			test.by.await(test.probe, submarinerv1.Connected, 10*time.Second) // it flaps
		})
	}
	t.Run("a dead agent", func(t *testing.T) {
		for _, stop := range all.stops {
			stop()
		}
		one := all.start(east, "gw", roles.Gateway(), west)
		one.await(over(0), submarinerv1.Connected, 5*time.Second)
		time.Sleep(2 * time.Second)
		for i := range 2 {
			require.Equal(t, submarinerv1.Connected, one.health()[over(i)].Status)
		}
	})
	require.Zero(t, all.ignored.Load())
}

// The kernel of a gateway forwards echoes back over all drivers that are VXLANs, also as large as
// the MTU, but not those of a sender that is missing in its table against forged packets.
func TestEchoesOverDrivers(t *testing.T) {
	for _, name := range []string{cable.VXLAN, cable.VXLANWireGuard, cable.VXLANIPsec} {
		t.Run(name, func(t *testing.T) {
			nstest.WireGuard(t) // every gateway announces its key
			fabric := newFabric(t)
			east := newMember(t, fabric, 1, "east", drivers.Find(name))
			west := newMember(t, fabric, 2, "west", drivers.Find(name))
			for _, m := range []*member{east, west} {
				m.publish(t)
			}
			east.sync(t, west)
			west.sync(t, east)
			nstest.Until(t, east.host("worker"), west.host("worker"))
			net := netip.MustParseAddr(east.link()).As4()[0]
			own, _ := cable.VTEP(net, netip.MustParseAddr(east.node("gw")))
			_, mac := cable.VTEP(net, netip.MustParseAddr(west.node("gw")))
			var socket *kernelprobe.Echoes
			var err error
			east.nodes["gw"].Do(func() { socket, err = kernelprobe.ListenEchoes(t.Context(), dataplane.EchoPort, 2000) })
			require.NoError(t, err)
			back := make(chan int, 100)
			go func() {
				_ = socket.Receive(func(b []byte, _ time.Time) { back <- len(b) }) // until it is closed
				close(back)
			}()
			mtu, err := strconv.Atoi(
				strings.TrimSpace(
					east.nodes["gw"].Run("ip -o link show " + east.device + " | grep -o 'mtu [0-9]*' | cut -d' ' -f2")),
			)
			require.NoError(t, err)
			for _, size := range []int{1, mtu - 28} {
				require.NoError(t, socket.Send(make([]byte, size), east.device, mac, netip.AddrPortFrom(own, 9)))
				select {
				case n := <-back:
					require.Equal(t, size, n)
				case <-time.After(10 * time.Second):
					require.Fail(t, "it did not come back", "%d bytes", size)
				}
			}
			require.Error(t, socket.Send(make([]byte, mtu-27), east.device, mac, netip.AddrPortFrom(own, 9)),
				"larger than the MTU")
			west.nodes["gw"].Run("nft flush set ip submariner-gateway-antispoof echo-peers")
			require.NoError(t, socket.Send([]byte{1}, east.device, mac, netip.AddrPortFrom(own, 9)))
			select {
			case <-back:
				require.Fail(t, "it came back although it must not")
			case <-time.After(300 * time.Millisecond):
			}
			require.NoError(t, socket.Close())
			for range back {
			}
		})
	}
}

// A member, here the gateway itself, forges echoes that do not come back, repeats old ones, or
// sends its own to a third cluster. Nothing counts as an answer, and nothing reaches the third
// cluster.
func TestHostileEchoes(t *testing.T) {
	fabric := newFabric(t)
	east := twoGateways(t, fabric, 1, "east")
	west := twoGateways(t, fabric, 2, "west")
	north := newSide(t, fabric, 3, "north")
	east.sync(t, west, north)
	west.sync(t, east)
	north.sync(t, east)
	all := &agents{t: t, triggered: make(chan *watcher, 100)}
	gw := all.start(east, "gw", roles.Gateway(), west, north)
	probe := west.cableOf(0) + " over vxlan-tunnel"
	attacker := west.nodes["gw"]
	gw.await(probe, submarinerv1.Connected, 10*time.Second)
	own, mac := cable.VTEP(dataplane.VXLANNet, netip.MustParseAddr("172.18.1.11"))
	var old [][]byte // echoes that the attacker has seen
	attacker.Do(func() {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM, int(binary.NativeEndian.Uint16([]byte{8, 0}))) // IPv4
		require.NoError(t, err)
		defer unix.Close(fd)
		for b := make([]byte, 2000); len(old) < 20; {
			n, err := unix.Read(fd, b)
			require.NoError(t, err)
			if b[9] == unix.IPPROTO_UDP && binary.BigEndian.Uint16(b[22:]) == dataplane.EchoPort {
				old = append(old, slices.Clone(b[28:n]))
			}
		}
	})
	attacker.Run("nft 'table ip broken { chain x { type filter hook forward priority -150; drop; }; }'")
	var socket *kernelprobe.Echoes
	var err error
	attacker.Do(func() { socket, err = kernelprobe.ListenEchoes(t.Context(), dataplane.EchoPort, 2000) })
	require.NoError(t, err)
	defer socket.Close()
	before := all.ignored.Load()
	stop := make(chan struct{})
	forged := make(chan int)
	go func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				forged <- n
				return
			default:
			}
			payloads := [][]byte{old[n%len(old)], old[n%len(old)][:n%18], nil}
			for seq := range uint16(600) { // the numbers of the next seconds
				payloads = append(payloads, append(binary.BigEndian.AppendUint16(nil, seq), make([]byte, 16)...))
			}
			for _, payload := range payloads {
				if err := socket.Send(payload, dataplane.VXLANDevice, mac, netip.AddrPortFrom(own, 9)); err != nil {
					t.Error(err)
				}
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	gw.await(probe, submarinerv1.ConnectionError, 5*time.Second)
	time.Sleep(time.Second)
	close(stop)
	require.Equal(t, submarinerv1.ConnectionError, gw.health()[probe].Status)
	require.Greater(t, all.ignored.Load()-before, int64(<-forged), "they arrived")

	t.Run("a flood", func(t *testing.T) { // would displace the echoes from others, which share the buffer of the socket
		third := north.cableOf(0) + " over vxlan-tunnel"
		gw.await(third, submarinerv1.Connected, 10*time.Second)
		before := all.ignored.Load()
		start := time.Now()
		for range 20_000 {
			require.NoError(t, socket.Send(old[0], dataplane.VXLANDevice, mac, netip.AddrPortFrom(own, 9)))
		}
		time.Sleep(100 * time.Millisecond)
		most := int64(cable.EchoRate * (2 + time.Since(start).Seconds()))
		require.Less(t, all.ignored.Load()-before, most, "no more arrive than one sender may send")
		require.Equal(t, submarinerv1.Connected, gw.health()[third].Status)
		require.NotZero(t, isolationDrops(t, east)["west"])
	})
	t.Run("to a third cluster", func(t *testing.T) {
		const seen = "nft list table ip seen | grep -o 'packets [0-9]*'"
		attacker.Run(
			"nft 'table ip seen { chain x { type filter hook prerouting priority -400; iifname vxlan-tunnel udp dport 4505 ip saddr != 241.18.1.0/24 counter; }; }'")
		gateway := north.nodes["gw"]
		gateway.Run("ip route add 241.18.2.11/32 via 241.18.1.11 dev vxlan-tunnel onlink")
		for _, src := range []string{"241.18.3.11", "241.18.2.11"} {
			gateway.Do(func() {
				socket, err := kernelprobe.ListenEchoes(t.Context(), dataplane.EchoPort, 2000)
				require.NoError(t, err)
				defer socket.Close()
				require.NoError(
					t,
					socket.Send([]byte("x"), dataplane.VXLANDevice, mac,
						netip.AddrPortFrom(netip.MustParseAddr(src), 9)),
				)
				if src == "241.18.3.11" {
					c, err := net.DialUDP("udp4", nil,
						&net.UDPAddr{IP: net.ParseIP("241.18.2.11"), Port: dataplane.EchoPort})
					require.NoError(t, err)
					defer c.Close()
					_, err = c.Write([]byte("x"))
					require.NoError(t, err)
				}
			})
		}
		time.Sleep(100 * time.Millisecond)
		require.Equal(t, "packets 0\n", attacker.Run(seen))
		require.NotZero(t, isolationDrops(t, east)["north"], "it was dropped at the gateway")
	})
}
