package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// ports sends a datagram to a UDP echo from each of so many ports, and counts how many come back:
// as many connections, as far as translation on the way is concerned.
func ports(ctx context.Context, args []string) error {
	rest, values, err := split(args, "first", "count", "timeout")
	if err != nil {
		return err
	}
	if len(rest) != 1 {
		return errors.New("ports wants HOST:PORT")
	}
	first, err := number(values, "first", 1024)
	if err != nil {
		return err
	}
	count, err := number(values, "count", 1000)
	if err != nil {
		return err
	}
	timeout, err := timeoutOf(values)
	if err != nil {
		return err
	}
	to, err := net.ResolveUDPAddr("udp4", rest[0])
	if err != nil {
		return err
	}
	const tries, atOnce = 5, 64
	var answered atomic.Int64
	var done sync.WaitGroup
	next := make(chan int)
	for range atOnce {
		done.Go(func() {
			for port := range next {
				for range tries {
					if back(port, to, timeout) == nil {
						answered.Add(1)
						break
					}
				}
			}
		})
	}
	for port := first; port < first+count && ctx.Err() == nil; port++ {
		next <- port
	}
	close(next)
	done.Wait()
	return json.NewEncoder(os.Stdout).Encode(map[string]int{"sent": count, "answered": int(answered.Load())})
}

// back sends a datagram from a port, and waits until it is back.
func back(port int, to *net.UDPAddr, timeout time.Duration) error {
	conn, err := net.DialUDP("udp4", &net.UDPAddr{Port: port}, to)
	if err != nil {
		return err
	}
	defer conn.Close()
	said := fmt.Appendf(nil, "port %d", port)
	if _, err := conn.Write(said); err != nil {
		return err
	}
	if err := conn.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	n, err := conn.Read(make([]byte, 100))
	if err == nil && n != len(said) {
		err = fmt.Errorf("%d bytes came back", n)
	}
	return err
}
