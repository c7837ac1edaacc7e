package agent

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/agent/roles"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/internal/nstest"
)

// withStandby returns a cluster with an active gateway, gw, a standby, gw2, and a worker.
func withStandby(t *testing.T, fabric *nstest.NS, n int, id string) *side {
	s := twoGateways(t, fabric, n, id)
	s.single = true
	s.elect("gw")
	return s
}

// elect makes a gateway the active one.
func (s *side) elect(active string) {
	s.announced = map[string]map[string]string{}
	for _, gw := range s.names[:s.gateways] {
		if gw != active {
			s.announced[gw] = map[string]string{submarinerv1.BackendDrain: submarinerv1.Standby}
		}
	}
}

// gaps sends a UDP packet every 2 ms until the function that it returns is called, which returns
// the longest time without an answer.
func gaps(t *testing.T, from *nstest.NS, to string) func() time.Duration {
	t.Helper()
	var c net.Conn
	from.Do(func() {
		var err error
		c, err = net.Dial("udp4", to)
		require.NoError(t, err)
	})
	var stop atomic.Bool
	var done sync.WaitGroup
	longest := time.Duration(0)
	last := time.Now()
	done.Go(func() {
		for !stop.Load() {
			_, _ = c.Write([]byte("x"))
			time.Sleep(2 * time.Millisecond)
		}
		c.Close()
	})
	done.Go(func() {
		for {
			_, err := c.Read(make([]byte, 10))
			now := time.Now()
			if longest, last = max(longest, now.Sub(last)), now; errors.Is(err, net.ErrClosed) {
				return
			}
		}
	})
	return func() time.Duration {
		stop.Store(true)
		done.Wait()
		return longest
	}
}

// The node of the active gateway is lost, and nobody is elected, as the API servers are down: all
// agents find it by their probes, and the standby carries connections from pod to pod and new ones
// to a Service, in both directions, for as long as nobody else does. Then the standby is elected,
// and the other gateway returns as a standby: no packet is lost.
func TestStandby(t *testing.T) {
	fabric := newFabric(t)
	east := withStandby(t, fabric, 1, "east")
	west := withStandby(t, fabric, 2, "west")
	resync := func() { east.sync(t, west); west.sync(t, east) }
	resync()
	all := &agents{t: t, triggered: make(chan *watcher, 100)}
	watchers := map[string]*watcher{}
	for _, s := range []*side{east, west} {
		other := map[*side]*side{east: west, west: east}[s]
		for _, name := range s.names {
			watchers[s.id+" "+name] = all.start(s, name, roles.Route(), other)
			if s.isGateway(name) {
				watchers[s.id+" "+name+" gateway"] = all.start(s, name, roles.Gateway(), other)
			}
		}
	}
	act := func() { // agents follow objects
		resync()
		for _, w := range all.all {
			w.act()
		}
	}
	follow := func(d time.Duration) {
		until := time.Now().Add(d)
		all.follow(func() bool { return time.Now().After(until) }, time.Minute)
	}
	for i, gw := range east.names[:2] {
		watchers["east worker"].await("gateway/"+gw, submarinerv1.Connected, 10*time.Second)
		watchers["west gw gateway"].await(east.cableOf(i)+" over vxlan-tunnel", submarinerv1.Connected, 10*time.Second)
	}
	follow(time.Second)

	const service = "10.102.0.10"
	client := east.pods["worker"]
	backend := west.podIP("worker") + ":8080"
	answerAll(t, west.pods["worker"], backend)
	for _, gw := range west.names[:2] {
		west.nodes[gw].Run(
			fmt.Sprintf("iptables -t nat -A PREROUTING -d %s/32 -p tcp --dport 80 -j DNAT --to-destination %s", service,
				backend),
		)
	}
	flowsOf := func(gw string) int {
		return flowsThrough(t, east.nodes[gw], "10.112.0.0/16") + flowsThrough(t, west.nodes[gw], "10.111.0.0/16")
	}
	plain := dials(t, client, backend, 20)
	talk(t, dials(t, client, service+":80", 20))
	require.Zero(t, flowsOf("gw2"), "standbys carry nothing")
	require.NotZero(t, flowsOf("gw"))

	t.Log("the nodes of both active gateways are lost")
	gap := gaps(t, client, backend)
	lost := time.Now()
	for _, s := range []*side{east, west} {
		s.nodes["gw"].Run("ip link set eth0 down")
	}
	follow(6 * time.Second)
	longest := gap()
	require.Less(t, longest, 5*time.Second) // about 0.5 s on an idle machine; nobody is elected in this time
	t.Logf("traffic again after %v; %v since the loss", longest, time.Since(lost))
	talk(t, plain)
	talk(t, dials(t, client, service+":80", 20))

	t.Log("the standbys are elected, and the others return as standbys")
	end := stream(t, client, backend)
	for _, s := range []*side{east, west} {
		s.elect("gw2")
	}
	act()
	follow(500 * time.Millisecond)
	for _, s := range []*side{east, west} {
		s.nodes["gw"].Run(fmt.Sprintf("ip link set eth0 up; ip route add default via 172.18.%d.254", s.n))
	}
	act()
	watchers["east worker"].await("gateway/gw", submarinerv1.Connected, 10*time.Second)
	watchers["west gw2 gateway"].await(east.cableOf(0)+" over vxlan-tunnel", submarinerv1.Connected, 10*time.Second)
	follow(500 * time.Millisecond)
	before := flowsOf("gw")
	talk(t, plain)
	talk(t, dials(t, client, service+":80", 20))
	packets, unanswered := end()
	require.Empty(t, unanswered, "packets of a stream of %d", packets)
	require.Equal(t, before, flowsOf("gw"), "who returns carries nothing")
}

// The agent of the active gateway is dead, and its kernel forwards. The standby is elected, and
// announces that the other gateway is a standby: no packet is lost, not even of the pods on its
// node, which still use its cables.
func TestDeadAgentOfTheActiveGateway(t *testing.T) {
	fabric := newFabric(t)
	east := withStandby(t, fabric, 1, "east")
	west := withStandby(t, fabric, 2, "west")
	east.sync(t, west)
	west.sync(t, east)
	var streams []func() (int, []string)
	for _, from := range east.names {
		for _, to := range west.names {
			backend := west.podIP(to) + ":8080"
			if from == "gw" {
				answerAll(t, west.pods[to], backend)
			}
			streams = append(streams, stream(t, east.pods[from], backend))
		}
	}
	conns := dials(t, east.pods["gw"], west.podIP("worker")+":8080", 10)
	before := sent(east.nodes["gw"])
	east.elect("gw2")
	for range 2 {
		for _, other := range east.names {
			east.syncOne(t, other, roles.Route(), west)
		}
		east.syncOne(t, "gw2", roles.Gateway(), west)
		west.sync(t, east)
		talk(t, conns)
		time.Sleep(200 * time.Millisecond)
	}
	require.NotEqual(t, before, sent(east.nodes["gw"]))
	reach(t, west, "worker", east, "gw")
	for _, end := range streams {
		n, lost := end()
		require.Empty(t, lost, "packets of a stream of %d", n)
	}
}
