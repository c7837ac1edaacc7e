package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
)

// ping sends ICMP echoes of each size, a few a second. It needs CAP_NET_RAW, which pods have unless
// it is taken from them.
func ping(ctx context.Context, args []string) error {
	rest, values, err := split(args, "count")
	if err != nil {
		return err
	}
	if len(rest) < 1 {
		return errors.New("ping wants HOST [SIZE...]")
	}
	count, err := number(values, "count", 3)
	if err != nil {
		return err
	}
	sizes, err := sizesOf(rest[1:])
	if err != nil {
		return err
	}
	if len(sizes) == 0 {
		sizes = []int{56}
	}
	to, err := net.ResolveIPAddr("ip4", rest[0])
	if err != nil {
		return err
	}
	conn, err := icmp.ListenPacket("ip4:icmp", "0.0.0.0")
	if err != nil {
		return err
	}
	defer conn.Close()
	for _, size := range sizes {
		if err := pingSize(ctx, conn, to, size, count); err != nil {
			return err
		}
	}
	return nil
}

func pingSize(ctx context.Context, conn *icmp.PacketConn, to *net.IPAddr, size, count int) error {
	var answered int
	var total time.Duration
	for seq := range count {
		took, err := pingOnce(conn, to, seq, size)
		if err != nil {
			fmt.Println("ERR", err)
		} else {
			answered++
			total += took
			fmt.Printf("%d bytes from %s: seq=%d time=%s\n", size, to, seq, took.Round(time.Microsecond))
		}
		if seq < count-1 {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(200 * time.Millisecond):
			}
		}
	}
	if answered < count {
		return fmt.Errorf("%d of %d answered, of %d bytes", answered, count, size)
	}
	fmt.Printf("OK %d of %d answered, mean %s\n", answered, count,
		(total / time.Duration(count)).Round(time.Microsecond))
	return nil
}

func pingOnce(conn *icmp.PacketConn, to *net.IPAddr, seq, size int) (time.Duration, error) {
	id := os.Getpid() & 0xffff
	data := make([]byte, max(size, 8))
	started := time.Now()
	binary.BigEndian.PutUint64(data, uint64(started.UnixNano()))
	packet, err := (&icmp.Message{
		Type: ipv4.ICMPTypeEcho,
		Body: &icmp.Echo{ID: id, Seq: seq, Data: data[:size]},
	}).Marshal(nil)
	if err != nil {
		return 0, err
	}
	if _, err := conn.WriteTo(packet, to); err != nil {
		return 0, err
	}
	if err := conn.SetReadDeadline(started.Add(2 * time.Second)); err != nil {
		return 0, err
	}
	buf := make([]byte, 65536)
	for {
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			return 0, fmt.Errorf("seq=%d: %w", seq, err)
		}
		answer, err := icmp.ParseMessage(ipv4.ICMPTypeEcho.Protocol(), buf[:n])
		if err != nil || from.String() != to.String() {
			continue
		}
		if e, ok := answer.Body.(*icmp.Echo); ok && answer.Type == ipv4.ICMPTypeEchoReply && e.ID == id &&
			e.Seq == seq &&
			len(e.Data) == size {
			return time.Since(started), nil
		}
	}
}
