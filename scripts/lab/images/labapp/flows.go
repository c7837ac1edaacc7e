package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	busyEvery  = 500 * time.Millisecond // between two messages of a busy TCP connection
	patience   = 15 * time.Second       // for an answer on a TCP connection, which repeats what was lost
	flowsLimit = 1000                   // of each kind: each has a port
	underWay   = time.Second            // for answers that are under way when a UDP flow ends, at most
	silence    = 300 * time.Millisecond // without an answer, after which no more are under way
	lookEvery  = 10 * time.Millisecond  // for such answers
)

// controlRate is the maximum number of datagrams of the control per second: it must not make the
// machine busy itself.
const controlRate = 100

// ownPorts hands out the local ports of flows, each once. Flows to the same target have the same
// remainder: where the targets are a Service and its pod, behind different gateways, which do not
// know each other's connections, two flows from one port may arrive as one, also if one of them has
// ended two minutes ago. For the same reason, ports are handed out in turn, from one that moves on
// with the clock: a kernel that chooses ports does not come back to one soon either (RFC 6056,
// algorithm 4).
type ownPorts struct {
	mu      sync.Mutex
	last    int // the number of ports handed out, or left out, since 1970
	targets []string
}

// The ports that kernels choose from, too, and how many of them the clock leaves behind in a
// second: all in 188 s.
const firstPort, lastPort, portsPerSecond = 32768, 60999, 150

func newOwnPorts(now time.Time, targets ...string) *ownPorts {
	return &ownPorts{last: int(now.Unix()) * portsPerSecond, targets: targets}
}

// next returns a port for a target.
func (o *ownPorts) next(target string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	for {
		o.last++
		if port := firstPort + o.last%(lastPort-firstPort+1); port%len(o.targets) == slices.Index(o.targets, target) {
			return port
		}
	}
}

// dial connects from a port that no other flow has.
func (o *ownPorts) dial(network, target string) (net.Conn, error) {
	for {
		d := net.Dialer{Timeout: patience}
		port := o.next(target)
		if d.LocalAddr = (&net.TCPAddr{Port: port}); network == "udp" {
			d.LocalAddr = &net.UDPAddr{Port: port}
		}
		conn, err := d.Dial(network, target)
		if errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, syscall.EADDRNOTAVAIL) {
			continue
		}
		return conn, err
	}
}

// flows opens flows to UDP and TCP echoes, each from a port of its own, and reports what became of
// each when its standard input ends: what a failure costs flows that are under way. The flows are
// dealt out to the targets in turn. Half of the TCP connections to each target are idle: they say
// nothing until the end. It prints a line to standard error when all are up.
func flows(ctx context.Context, args []string) error {
	targets, values, err := split(args, "udp", "rate", "size", "tcp", "control")
	if err != nil {
		return err
	}
	if len(targets) == 0 {
		return errors.New("flows wants HOST:PORT")
	}
	var n [4]int
	for i, option := range []struct {
		name  string
		usual int
	}{{"udp", 4}, {"rate", 100}, {"size", 64}, {"tcp", 20}} {
		if n[i], err = number(values, option.name, option.usual); err != nil {
			return err
		}
	}
	udps := min(n[0], flowsLimit)
	rate := n[1]
	size := n[2]
	tcps := min(n[3], flowsLimit)
	ctx = untilStdinEnds(ctx)
	result := struct {
		UDP     []*udpFlow `json:"udp"`
		TCP     []*tcpFlow `json:"tcp"`
		Control *udpFlow   `json:"control,omitempty"`
	}{}
	var up, ended sync.WaitGroup
	begin := func(f *udpFlow, ports *ownPorts, rate int) {
		up.Add(1)
		ended.Go(func() { f.run(ctx, ports, rate, size, up.Done) })
	}
	if target := values["control"]; target != "" {
		result.Control = &udpFlow{Target: target}
		begin(result.Control, newOwnPorts(time.Now(), target), min(rate, controlRate))
	}
	ports := newOwnPorts(time.Now(), targets...)
	for i := range udps {
		f := &udpFlow{Target: targets[i%len(targets)]}
		result.UDP = append(result.UDP, f)
		begin(f, ports, rate)
	}
	for i := range tcps {
		f := &tcpFlow{Target: targets[i%len(targets)], Idle: i/len(targets)%2 == 1}
		result.TCP = append(result.TCP, f)
		up.Add(1)
		ended.Go(func() { f.run(ctx, ports, up.Done) })
	}
	up.Wait()
	allUp := time.Now()
	fmt.Fprintln(os.Stderr, "all flows are up")
	ended.Wait()
	for _, f := range append(result.UDP, result.Control) {
		if f != nil {
			f.count(allUp)
		}
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

// udpFlow is a flow of numbered datagrams at a steady rate.
type udpFlow struct {
	Target  string `json:"target"`
	Port    int    `json:"port"` // of this end
	Sent    int    `json:"sent"`
	Skipped int    `json:"skipped"` // not sent, because the machine was too busy to send them in time
	Lost    int    `json:"lost"`
	// when the first of them should have been sent, and the last one, since all flows are up
	LostFrom   int     `json:"lostFromMs"`
	LostTo     int     `json:"lostToMs"`
	LongestGap float64 `json:"longestGapMs"` // without an answer
	GapFrom    int     `json:"gapFromMs"`    // when the last answer before it arrived, since all flows are up
	Err        string  `json:"err,omitempty"`

	every          time.Duration // between two datagrams
	started, ended time.Time
	back           []bool // the datagrams that were answered
	skipped        map[int]bool
	arrivals       []time.Time // of answers
}

// count counts what was lost, and the gaps, from a time on: before all flows were up, the machine
// was busy with opening them.
func (f *udpFlow) count(from time.Time) {
	first := 0
	if f.every > 0 {
		first = min(max(int(from.Sub(f.started)/f.every), 0), f.Sent)
	}
	for i := first; i < f.Sent; i++ {
		if f.back[i] || f.skipped[i] {
			continue
		}
		f.LostTo = int(f.started.Add(time.Duration(i) * f.every).Sub(from).Milliseconds())
		if f.Lost++; f.Lost == 1 {
			f.LostFrom = f.LostTo
		}
	}
	f.Skipped = len(f.skipped)
	f.Sent -= f.Skipped
	i := slices.IndexFunc(f.arrivals, from.Before)
	if i < 0 {
		i = len(f.arrivals)
	}
	gap, after := longestGap(from, f.arrivals[i:], f.ended)
	f.LongestGap = gap
	f.GapFrom = int(after.Sub(from).Milliseconds())
}

func (f *udpFlow) run(ctx context.Context, ports *ownPorts, rate, size int, up func()) {
	var once sync.Once
	defer once.Do(up)
	conn, err := ports.dial("udp", f.Target)
	if err != nil {
		f.Err = err.Error()
		return
	}
	defer conn.Close()
	holdMore(conn.(*net.UDPConn))
	f.Port = conn.LocalAddr().(*net.UDPAddr).Port
	f.every = time.Second / time.Duration(rate)
	f.back = make([]bool, rate*maxStream)
	f.skipped = map[int]bool{}
	var arrived atomic.Int64
	received := make(chan struct{})
	go func() {
		defer close(received)
		f.arrivals = receive(conn, f.back, func() {
			if arrived.Add(1) == 1 {
				once.Do(up)
			}
		})
	}()
	f.started = time.Now()
	refused := 0
	f.Sent, refused = sendAll(ctx, conn, len(f.back), size, f.every, func(i int) { f.skipped[i] = true })
	f.ended = time.Now()
	awaitAnswers(&arrived, int64(f.Sent-refused-len(f.skipped)))
	_ = conn.SetReadDeadline(time.Now())
	<-received
}

// awaitAnswers waits for the answers that are under way: until all have arrived, or none has for
// the time of silence, or underWay is over. It counts looks, and not time: while the machine is too
// busy to run this program, nothing is silent.
func awaitAnswers(arrived *atomic.Int64, all int64) {
	began := time.Now()
	last := arrived.Load()
	for looks := 0; last < all && looks < int(silence/lookEvery) && time.Since(began) < underWay; {
		time.Sleep(lookEvery)
		looks++
		if now := arrived.Load(); now > last {
			last = now
			looks = 0
		}
	}
}

// tcpFlow is a connection to an echo.
type tcpFlow struct {
	Target string `json:"target"`
	Port   int    `json:"port"` // of this end
	Idle   bool   `json:"idle"`
	Err    string `json:"err,omitempty"` // why it did not survive
}

func (f *tcpFlow) run(ctx context.Context, ports *ownPorts, up func()) {
	var once sync.Once
	defer once.Do(up)
	conn, err := ports.dial("tcp", f.Target)
	if err == nil {
		defer conn.Close()
		f.Port = conn.LocalAddr().(*net.TCPAddr).Port
		err = echoed(conn)
	}
	once.Do(up)
	for err == nil && !f.Idle && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(busyEvery):
			err = echoed(conn)
		}
	}
	<-ctx.Done()
	if err == nil {
		err = echoed(conn)
	}
	if err != nil {
		f.Err = err.Error()
	}
}

// echoed sends a message and waits for it to come back.
func echoed(conn net.Conn) error {
	said := []byte(time.Now().Format(time.RFC3339Nano))
	heard := make([]byte, len(time.RFC3339Nano)*2)
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := conn.Write(said); err != nil {
		return err
	}
	heard = heard[:len(said)]
	if _, err := io.ReadFull(conn, heard); err != nil {
		return err
	}
	if !bytes.Equal(said, heard) {
		return fmt.Errorf("%q came back, not %q", heard, said)
	}
	return nil
}
