package agent

import (
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/internal/measure"
)

// BenchmarkAggregate measures what several gateways carry together, of what one carries: between
// two clusters with as many gateways each, where each gateway sends 200 Mbit/s at most through its
// cables. The connections are between pods of workers.
func BenchmarkAggregate(b *testing.B) {
	names := []string{"gw", "gw2", "gw3", "gw4"}
	between := map[int]func() float64{}
	for _, n := range []int{1, 2, 4} {
		fabric := newFabric(b)
		nodes := append(append([]string{}, names[:n]...), "worker")
		east := newSideOf(b, fabric, 1, "east", n, nodes...)
		west := newSideOf(b, fabric, 2, "west", n, nodes...)
		east.sync(b, west)
		west.sync(b, east)
		for _, s := range []*side{east, west} {
			for _, gw := range names[:n] {
				s.nodes[gw].Run("tc qdisc add dev vxlan-tunnel root tbf rate 200mbit burst 128kb latency 50ms")
			}
		}
		between[n] = func() float64 { return throughputOf(b, east, west, 64) }
	}
	for b.Loop() {
		for n, target := range map[int]float64{2: 190, 4: 360} {
			c := measure.Compare(measure.Times(5), between[n], between[1])
			measure.Record(
				b,
				measure.AtLeast(
					fmt.Sprintf("%d gateways, each with cables of 200 Mbit/s: throughput, of that of one", n),
					c.Percent, target, "%"),
				measure.Info(fmt.Sprintf("%d gateways, each with cables of 200 Mbit/s: throughput", n), c.Ours.Per(1e6),
					"Mbit/s"),
			)
		}
	}
}

// throughputOf returns how many bits arrive in a second through so many connections between the
// workers' pods of two clusters, once they have got going.
func throughputOf(b *testing.B, from, to *side, connections int) float64 {
	b.Helper()
	var received atomic.Int64
	var running sync.WaitGroup
	var l net.Listener
	var err error
	to.pods["worker"].Do(func() { l, err = net.Listen("tcp4", to.podIP("worker")+":0") })
	require.NoError(b, err)
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer c.Close()
				buf := make([]byte, 1<<16)
				for {
					n, err := c.Read(buf)
					received.Add(int64(n))
					if err != nil {
						return
					}
				}
			})
		}
	})
	var clients []io.Closer
	from.pods["worker"].Do(func() {
		for range connections {
			c, err := net.DialTimeout("tcp4", l.Addr().String(), 5*time.Second)
			require.NoError(b, err)
			require.NoError(b, c.(*net.TCPConn).SetLinger(0)) // what is under way does not matter
			clients = append(clients, c)
			running.Go(func() {
				chunk := make([]byte, 1<<16)
				for {
					if _, err := c.Write(chunk); err != nil {
						return
					}
				}
			})
		}
	})
	time.Sleep(2 * time.Second)
	before := received.Load()
	began := time.Now()
	time.Sleep(2 * time.Second)
	bits := float64(8*(received.Load()-before)) / time.Since(began).Seconds()
	l.Close()
	for _, c := range clients {
		c.Close()
	}
	running.Wait()
	return bits
}
