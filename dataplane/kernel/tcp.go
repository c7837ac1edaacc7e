//go:build linux

package kernel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// ListenTCP listens at an address, in the calling thread's network namespace. If a device has the
// address, connections through other devices are not accepted: Linux would accept them, as an
// address belongs to the whole host. What is sent has a mark.
func ListenTCP(ctx context.Context, address string, mark uint32) (net.Listener, error) {
	device := ""
	if at, err := netip.ParseAddrPort(address); err == nil && !at.Addr().IsUnspecified() {
		if device, err = deviceOf(at.Addr()); err != nil {
			return nil, err
		}
	}
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var set error
		err := raw.Control(func(fd uintptr) {
			set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, int(mark))
			if device != "" {
				set = errors.Join(set, unix.BindToDevice(int(fd), device))
			}
		})
		return errors.Join(err, set)
	}}
	return config.Listen(ctx, "tcp", address)
}

// deviceOf returns the name of the device with an address.
func deviceOf(ip netip.Addr) (string, error) {
	all, err := net.Interfaces()
	if err != nil {
		return "", fmt.Errorf("listing devices: %w", err)
	}
	for _, d := range all {
		addrs, err := d.Addrs()
		if err != nil {
			return "", fmt.Errorf("listing the addresses of device %s: %w", d.Name, err)
		}
		if slices.ContainsFunc(addrs, func(a net.Addr) bool {
			n, ok := a.(*net.IPNet)
			own, valid := netip.AddrFromSlice(n.IP)
			return ok && valid && (own.Unmap() == ip.Unmap() || ip.Unmap().IsLoopback() && own.IsLoopback())
		}) {
			return d.Name, nil
		}
	}
	return "", fmt.Errorf("no device has the address %v", ip)
}
