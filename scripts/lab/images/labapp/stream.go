package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"time"
)

const maxStream = 3600 // seconds that a stream takes at most

// stream sends numbered datagrams at a steady rate to a UDP echo, from one port, and says how many came back and for how
// long none did: what a failover costs a flow. For 0 seconds it goes on until its standard input ends ("kubectl exec -i").
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
	conn, err := net.Dial("udp", rest[0])
	if err != nil {
		return err
	}
	defer conn.Close()

	back := make([]bool, total)
	var arrivals []time.Time
	received := make(chan struct{})
	go func() {
		defer close(received)
		arrivals = receive(conn, back)
	}()
	started := time.Now()
	sent, refused := sendAll(ctx, conn, total, time.Second/time.Duration(rate))
	ended := time.Now()
	// What is on its way may arrive: a second is plenty.
	if err := conn.SetReadDeadline(ended.Add(time.Second)); err != nil {
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
		From       string  `json:"from"`
		To         string  `json:"to"`
	}{Sent: sent, NotSent: refused, From: conn.LocalAddr().String(), To: conn.RemoteAddr().String()}
	row := 0
	for _, ok := range back[:sent] {
		if ok {
			result.Received++
			row = 0
			continue
		}
		row++
		result.LostInARow = max(result.LostInARow, row)
	}
	result.Lost = sent - result.Received
	last := started
	for _, at := range append(arrivals, ended) {
		result.LongestGap = max(result.LongestGap, float64(at.Sub(last).Microseconds())/1000)
		last = at
	}
	if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
		return err
	}
	if result.Received == 0 {
		return errors.New("nothing came back")
	}
	return nil
}

func untilStdinEnds(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return ctx
}

// sendAll keeps to the clock, not to the pause: a machine that was busy catches up. Errors (unreachable, for a while) are losses.
func sendAll(ctx context.Context, conn net.Conn, total int, every time.Duration) (sent, refused int) {
	started := time.Now()
	for i := range total {
		select {
		case <-ctx.Done():
			return i, refused
		case <-time.After(time.Until(started.Add(time.Duration(i) * every))):
		}
		var packet [64]byte
		binary.BigEndian.PutUint32(packet[:], uint32(i))
		if _, err := conn.Write(packet[:]); err != nil {
			refused++
		}
	}
	return total, refused
}

// receive notes what comes back until the deadline.
func receive(conn net.Conn, back []bool) (arrivals []time.Time) {
	buf := make([]byte, 64)
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
		if i := int(binary.BigEndian.Uint32(buf)); n == len(buf) && i < len(back) && !back[i] {
			back[i] = true
			arrivals = append(arrivals, time.Now())
		}
	}
}
