package main

import (
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
	"time"
)

// The first byte of a connection says what the server shall do with it.
const (
	wantSink   = 'S' // read all: the client sends
	wantSource = 'R' // send for ever: the client reads
	wantEcho   = 'E' // send back what comes: for the round trip time
)

func serveBench(ctx context.Context, args []string) error {
	listen := ":5201"
	if len(args) > 0 {
		listen = args[0]
	}
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { listener.Close() })
	for {
		conn, err := listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			serveBenchConn(conn)
		}()
	}
}

func serveBenchConn(conn net.Conn) {
	var want [1]byte
	if _, err := io.ReadFull(conn, want[:]); err != nil {
		return
	}
	switch want[0] {
	case wantSink:
		io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{conn}, make([]byte, 256<<10))
	case wantSource:
		for buf := make([]byte, 256<<10); ; {
			if _, err := conn.Write(buf); err != nil {
				return
			}
		}
	case wantEcho:
		io.Copy(conn, conn)
	}
}

func bench(ctx context.Context, args []string) error {
	rest, values, err := split(args, "seconds", "streams")
	if err != nil {
		return err
	}
	if len(rest) != 1 {
		return errors.New("bench wants HOST:PORT")
	}
	seconds, err := number(values, "seconds", 5)
	if err != nil {
		return err
	}
	streams, err := number(values, "streams", 1)
	if err != nil {
		return err
	}
	result := struct {
		Streams  int     `json:"streams"`
		Seconds  int     `json:"seconds"`           // for each direction
		Sent     float64 `json:"sentBitsPerSecond"` // what the sender could hand to the kernel
		Received float64 `json:"receivedBitsPerSecond"`
		RTT      float64 `json:"rttMedianSeconds"` // of one byte there and back over an idle connection
		RTT99    float64 `json:"rtt99Seconds"`
	}{Streams: streams, Seconds: seconds}
	// On the idle path first.
	if result.RTT, result.RTT99, err = roundTrips(ctx, rest[0]); err != nil {
		return err
	}
	d := time.Duration(seconds) * time.Second
	if result.Sent, err = throughput(ctx, rest[0], wantSink, streams, d); err != nil {
		return err
	}
	if result.Received, err = throughput(ctx, rest[0], wantSource, streams, d); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

func benchConn(ctx context.Context, addr string, want byte, d time.Duration) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: defaultTimeout}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(time.Now().Add(d)); err == nil {
		_, err = conn.Write([]byte{want})
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// roundTrips asks for a second, or a thousand times.
func roundTrips(ctx context.Context, addr string) (median, p99 float64, err error) {
	conn, err := benchConn(ctx, addr, wantEcho, defaultTimeout)
	if err != nil {
		return 0, 0, err
	}
	defer conn.Close()
	var times []time.Duration
	var b [1]byte
	for started := time.Now(); time.Since(started) < time.Second && len(times) < 1000; {
		asked := time.Now()
		if _, err := conn.Write(b[:]); err != nil {
			return 0, 0, err
		}
		if _, err := io.ReadFull(conn, b[:]); err != nil {
			return 0, 0, fmt.Errorf("waiting for an answer: %w", err)
		}
		times = append(times, time.Since(asked))
	}
	slices.Sort(times)
	return times[len(times)/2].Seconds(), times[len(times)*99/100].Seconds(), nil
}

// throughput moves bytes in one direction over several connections, in bits per second.
func throughput(ctx context.Context, addr string, want byte, streams int, d time.Duration) (float64, error) {
	var wg sync.WaitGroup
	var moved atomic.Int64
	errs := make([]error, streams)
	started := time.Now()
	for i := range streams {
		wg.Go(func() {
			conn, err := benchConn(ctx, addr, want, d)
			if err != nil {
				errs[i] = err
				return
			}
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { conn.Close() })()
			move := conn.Read
			if want == wantSink {
				move = conn.Write
			}
			for buf := make([]byte, 256<<10); ; {
				n, err := move(buf)
				moved.Add(int64(n))
				if err != nil {
					var timeout net.Error
					if !errors.As(err, &timeout) || !timeout.Timeout() { // the deadline is the regular end
						errs[i] = err
					}
					return
				}
			}
		})
	}
	wg.Wait()
	return float64(moved.Load()*8) / time.Since(started).Seconds(), errors.Join(errs...)
}
