package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"syscall"
)

// raw sends IPv4 packets as they are, whatever their source. It needs CAP_NET_RAW.
func raw(_ context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("raw wants PACKET...")
	}
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_RAW, syscall.IPPROTO_RAW)
	if err != nil {
		return fmt.Errorf("opening a raw socket: %w", err)
	}
	defer syscall.Close(fd)
	for _, text := range args {
		packet, err := hex.DecodeString(text)
		if err != nil || len(packet) < 20 {
			return fmt.Errorf("%.40q is not an IPv4 packet in hexadecimal", text)
		}
		if err := syscall.Sendto(fd, packet, 0, &syscall.SockaddrInet4{Addr: [4]byte(packet[16:20])}); err != nil {
			return fmt.Errorf("sending to %v: %w", packet[16:20], err)
		}
	}
	fmt.Println("OK")
	return nil
}
