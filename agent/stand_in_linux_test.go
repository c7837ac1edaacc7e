package agent

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"subctl/agent/mesh"
	"subctl/agent/roles"
	"subctl/cable"
	"subctl/internal/nstest"
)

// bulk sends large pieces over a TCP connection, which come back, until the function that it
// returns is called. That returns how many there were, and what stopped them.
func bulk(t *testing.T, conn net.Conn) func() (int, error) {
	t.Helper()
	var stop atomic.Bool
	done := make(chan error, 1)
	n := 0
	go func() {
		piece := bytes.Repeat([]byte("subctl"), 20000)
		back := make([]byte, 6*20000)
		for !stop.Load() {
			_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
			sent := make(chan error, 1)
			go func() { _, err := conn.Write(piece); sent <- err }()
			if _, err := io.ReadFull(conn, back); err != nil {
				done <- err
				return
			}
			if err := <-sent; err != nil {
				done <- err
				return
			}
			n++
			time.Sleep(100 * time.Millisecond)
		}
		done <- nil
	}()
	return func() (int, error) {
		stop.Store(true)
		return n, <-done
	}
}

// urgent lets the test, and programs that it starts, run before others: where wireguard-go waits
// for a processor for long, packets are dropped, which is not what the test is about.
func urgent(t *testing.T) {
	t.Helper()
	set := func(nice int) {
		tasks, err := os.ReadDir("/proc/self/task")
		require.NoError(t, err)
		for _, task := range tasks {
			id, err := strconv.Atoi(task.Name())
			require.NoError(t, err)
			_ = unix.Setpriority(unix.PRIO_PROCESS, id, nice) // of a thread; it may have ended
		}
	}
	set(-15)
	t.Cleanup(func() { set(0) })
}

// Clusters whose driver connects to one gateway of a cluster get a second active gateway, and lose
// it again, one after the other, while packets flow: each pair of gateways changes to the
// combination in time, and back, and nothing is lost. Of IPsec, which needs the kernel's here,
// TestChange of cable/ipsec does the same.
func TestStandInTransitions(t *testing.T) {
	const driver, in = cable.WireGuard, cable.VXLANWireGuard
	urgent(t)
	fabric := newFabric(t)
	east := newCrew(t, fabric, 1, "east", driver)
	west := newCrew(t, fabric, 2, "west", driver)
	settle := func(step string, wantEast, wantWest []string) {
		t.Helper()
		start := time.Now()
		for range 2 { // each learns what the other has changed
			east.pass(t, west)
			west.pass(t, east)
		}
		for !slices.Equal(wantEast, east.cables()) || !slices.Equal(wantWest, west.cables()) {
			require.Less(t, time.Since(start), time.Minute, "%s: east %q, west %q", step, east.cables(), west.cables())
			east.pass(t, west)
			west.pass(t, east)
		}
		t.Logf("%s from %s to %s: %v", step, start.Format(clock), time.Now().Format(clock), wantEast)
	}
	leave := func(c, other *crew) {
		c.leaveRole()
		for range 3 {
			c.pass(t, other)
			other.pass(t, c)
		}
		c.single()
	}
	pairs := []string{"gw-gw", "gw-gw2", "gw2-gw", "gw2-gw2"}
	var all, alone []string
	for _, p := range pairs {
		all = append(all, p+" "+in)
		alone = append(alone, p+" "+in)
	}
	alone[0] = pairs[0] + " " + driver // standbys have the combination, too
	settle("one active gateway each", alone, alone)
	fit := func(s, other *crew, from, to string) {
		t.Helper()
		mesh := mesh.PlanOf(s.plans[[2]string{"gw", roles.Gateway().Name}]).Mesh
		host := func(s *crew, node string) nstest.Host { return nstest.Host{NS: s.pods[node], IP: s.podIP(node)} }
		// of the combination
		nstest.Reach(t, host(s, from), host(other, to), mesh.Cables.Wanted[1].MTU(mesh.Offer.Local))
	}
	fit(east, west, "worker", "worker")
	backend := west.podIP("worker") + ":8080"
	answerAll(t, west.pods["worker"], backend)
	// Nothing else floods the cables meanwhile, as fit does: where their queues overflow, packets
	// are lost whatever the agents do.
	lossless := func(change func()) {
		var streams []func() (int, []string)
		for range 4 {
			streams = append(streams, stream(t, east.pods["worker"], backend))
		}
		change()
		for _, end := range streams {
			n, lost := end()
			require.Greater(t, n, 50) // the changes take less than a second on a fast machine
			require.Empty(t, lost, "packets of a stream of %d", n)
		}
	}
	sent := bulk(t, dials(t, east.pods["worker"], backend, 1)[0])

	lossless(func() {
		west.both()
		settle("west has two", all, all)
		east.both()
		settle("both have two", all, all)
	})
	for _, g := range east.reported {
		for _, c := range g.Status.Connections {
			require.Equal(
				t,
				fmt.Sprintf(
					"%s connects to one gateway of a cluster, and clusters east and west have several: %s is in its place",
					driver, in),
				c.DriverReason,
			)
		}
	}
	for from, to := range map[string]string{"gw": "gw2", "gw2": "worker", "worker": "gw"} {
		fit(east, west, from, to)
		fit(west, east, from, to)
	}
	lossless(func() {
		leave(west, east)
		settle("west has one", all, all)
		leave(east, west)
		settle("one active gateway each again", alone, alone)
	})
	fit(east, west, "gw", "gw")
	n, err := sent()
	require.NoError(t, err, "the TCP connection after %d pieces", n)
	require.Greater(t, n, 100)
}
