package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"
)

const maxStream = 3600 // seconds that a stream takes at most

// stream sends numbered datagrams at a steady rate to a UDP echo, from one port, and reports how
// many came back and for how long none did: what a failover costs a flow. With 0 seconds it goes on
// until its standard input ends ("kubectl exec -i"). It prints a line to standard error when the
// first datagram comes back.
func stream(ctx context.Context, args []string) error {
	rest, values, err := split(args, "rate", "seconds")
	if err != nil {
		return err
	}
	if len(rest) != 1 {
		return errors.New("stream wants HOST:PORT")
	}
	rate, err := number(values, "rate", 100)
	if err != nil {
		return err
	}
	total := rate * maxStream
	if values["seconds"] == "0" {
		ctx = untilStdinEnds(ctx)
	} else {
		seconds, err := number(values, "seconds", 10)
		if err != nil {
			return err
		}
		total = rate * seconds
	}
	to, err := net.ResolveUDPAddr("udp", rest[0])
	if err != nil {
		return err
	}
	conn, err := net.DialUDP("udp", nil, to)
	if err != nil {
		return err
	}
	defer conn.Close()
	holdMore(conn)

	back := make([]bool, total)
	var arrivals []time.Time
	var arrived atomic.Int64
	received := make(chan struct{})
	go func() {
		defer close(received)
		arrivals = receive(conn, back, func() {
			if arrived.Add(1) == 1 {
				fmt.Fprintln(os.Stderr, "datagrams come back")
			}
		})
	}()
	started := time.Now()
	sent, refused := sendAll(ctx, conn, total, header, time.Second/time.Duration(rate), nil)
	ended := time.Now()
	for time.Since(ended) < time.Second && arrived.Load() < int64(sent-refused) { // datagrams on their way may arrive
		time.Sleep(10 * time.Millisecond)
	}
	if err := conn.SetReadDeadline(time.Now()); err != nil {
		return err
	}
	<-received

	result := struct {
		Sent       int     `json:"sent"`
		Received   int     `json:"received"`
		Lost       int     `json:"lost"`
		LongestGap float64 `json:"longestGapMs"` // without an answer, also at the beginning and the end
		LostInARow int     `json:"mostLostInARow"`
		NotSent    int     `json:"notSent"` // by the kernel, for want of a route for instance; counted as lost
		// the first that were lost: when each should have been sent, counted from the beginning
		LostAt []int  `json:"lostAtMs"`
		From   string `json:"from"`
		To     string `json:"to"`
	}{Sent: sent, NotSent: refused, From: conn.LocalAddr().String(), To: conn.RemoteAddr().String()}
	row := 0
	for i, ok := range back[:sent] {
		if ok {
			result.Received++
			row = 0
			continue
		}
		if len(result.LostAt) < 20 {
			result.LostAt = append(result.LostAt, i*1000/rate)
		}
		row++
		result.LostInARow = max(result.LostInARow, row)
	}
	result.Lost = sent - result.Received
	result.LongestGap, _ = longestGap(started, arrivals, ended)
	if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
		return err
	}
	if result.Received == 0 {
		return errors.New("nothing came back")
	}
	return nil
}

// longestGap returns the longest time without an arrival, in milliseconds, and when it begins.
func longestGap(started time.Time, arrivals []time.Time, ended time.Time) (longest float64, from time.Time) {
	last := started
	from = started
	for _, at := range append(arrivals, ended) {
		if gap := float64(at.Sub(last).Microseconds()) / 1000; gap > longest {
			longest = gap
			from = last
		}
		last = at
	}
	return longest, from
}

func untilStdinEnds(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return ctx
}

// missed is the delay from which on a datagram is left out.
const missed = 20 * time.Millisecond

// header is the size of the smallest datagram, in bytes. Its number is at the beginning.
const header = 64

// sendAll follows the clock. After the machine was busy, it catches up, or leaves out what it has
// missed, if skip is not nil: a burst of many datagrams may be more than the machine's queues have
// room for. Errors, such as an unreachable network, count as losses.
func sendAll(
	ctx context.Context,
	conn net.Conn,
	total, size int,
	every time.Duration,
	skip func(i int),
) (sent, refused int) {
	started := time.Now()
	packet := make([]byte, max(size, header))
	for i := range total {
		select {
		case <-ctx.Done():
			return i, refused
		case <-time.After(time.Until(started.Add(time.Duration(i) * every))):
		}
		if skip != nil && time.Since(started)-time.Duration(i)*every > missed {
			skip(i)
			continue
		}
		binary.BigEndian.PutUint32(packet, uint32(i))
		if _, err := conn.Write(packet); err != nil {
			refused++
		}
	}
	return total, refused
}

// receive notes what comes back until the deadline, and calls arrived for each datagram.
func receive(conn net.Conn, back []bool, arrived func()) (arrivals []time.Time) {
	buf := make([]byte, 1<<16)
	for {
		n, err := conn.Read(buf)
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			return arrivals
		}
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return arrivals
			}
			continue // an ICMP error: the next datagram may pass
		}
		if i := int(binary.BigEndian.Uint32(buf)); n >= header && i < len(back) && !back[i] {
			back[i] = true
			arrivals = append(arrivals, time.Now())
			arrived()
		}
	}
}
