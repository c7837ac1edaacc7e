//go:build linux

package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// UDP is a socket for probing a path: it reports to which of the node's addresses a datagram
// was sent, and the datagrams that it sends are never fragmented, neither here nor on the
// path (IP_PMTUDISC_PROBE in ip(7): the don't-fragment bit is set, and the path MTU that the
// kernel has recorded is ignored).
type UDP struct{ conn *net.UDPConn }

// ListenUDP opens a socket on a port of all the node's IPv4 addresses, in the calling
// thread's network namespace.
func ListenUDP(ctx context.Context, port int) (*UDP, error) {
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var set error
		err := raw.Control(func(fd uintptr) {
			set = errors.Join(
				unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_PKTINFO, 1),
				unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE))
		})
		return errors.Join(err, set)
	}}
	conn, err := config.ListenPacket(ctx, "udp4", fmt.Sprintf(":%d", port))
	if err != nil {
		return nil, fmt.Errorf("opening UDP port %d: %w", port, err)
	}
	return &UDP{conn.(*net.UDPConn)}, nil
}

// Receive waits for a datagram, and returns its size, its source, and the address of the
// node that it was sent to. A datagram that is longer than b is truncated.
func (u *UDP) Receive(b []byte) (n int, from netip.AddrPort, to netip.Addr, err error) {
	control := make([]byte, unix.CmsgSpace(unix.SizeofInet4Pktinfo))
	n, more, _, from, err := u.conn.ReadMsgUDPAddrPort(b, control)
	if err != nil {
		return 0, from, to, err
	}
	messages, err := unix.ParseSocketControlMessage(control[:more])
	if err != nil {
		return 0, from, to, fmt.Errorf("reading the control messages of a datagram: %w", err)
	}
	for _, m := range messages {
		if m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_PKTINFO &&
			len(m.Data) >= unix.SizeofInet4Pktinfo {
			to = netip.AddrFrom4([4]byte(m.Data[4:8])) // ipi_spec_dst, after ipi_ifindex
		}
	}
	return n, netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), to, nil
}

// Send sends a datagram from one of the node's addresses. It is an error if the datagram is
// larger than the device's MTU.
func (u *UDP) Send(b []byte, from netip.Addr, to netip.AddrPort) error {
	var source unix.Inet4Pktinfo
	if from.Is4() {
		source.Spec_dst = from.As4()
	}
	_, _, err := u.conn.WriteMsgUDPAddrPort(b, unix.PktInfo4(&source), to)
	return err
}

// Close closes the socket, which ends a Receive that waits.
func (u *UDP) Close() error { return u.conn.Close() }
