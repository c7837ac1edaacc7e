//go:build linux

package probe

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// Echoes is a socket for datagrams from and to an address of this node, which another node forwards
// back. They are sent by a packet socket, as routing would deliver them here at once. That socket
// receives nothing: the kernel would copy all packets that arrive on the devices for it. They
// arrive on a socket of UDP, with the source that the table against forged packets gives them.
type Echoes struct {
	*Arrivals     // of conn
	packets   int // a packet socket
	conn      *net.UDPConn
	port      uint16
	devices   map[string]int // indexes, by name; Send alone uses them
}

// echoBuffer is the size of the buffer for echoes that have come back: of 1,000 targets at once.
const echoBuffer = 2 << 20

// ListenEchoes opens a socket for echoes to a port, in the calling thread's network namespace. Of
// each, size bytes are read.
func ListenEchoes(ctx context.Context, port, size int) (*Echoes, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("opening a packet socket for echoes: %w", err)
	}
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) {
			// the default suffices for some 250 targets
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, echoBuffer)
		})
	}}
	conn, err := config.ListenPacket(ctx, "udp4", fmt.Sprintf(":%d", port))
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("opening UDP port %d: %w", port, err)
	}
	udp := conn.(*net.UDPConn)
	arrivals, err := NewArrivals(udp, size)
	if err != nil {
		unix.Close(fd)
		udp.Close()
		return nil, fmt.Errorf("opening UDP port %d: %w", port, err)
	}
	return &Echoes{packets: fd, Arrivals: arrivals, conn: udp, port: uint16(port), devices: map[string]int{}}, nil
}

// Send sends a datagram on a device to a MAC address, from an address of this node, and a port, to
// this address. It is never fragmented, and it is an error if it is larger than the MTU of the
// device. It must not be called by several goroutines at a time.
func (e *Echoes) Send(payload []byte, dev, mac string, own netip.AddrPort) error {
	hw, err := net.ParseMAC(mac)
	if err != nil {
		return err
	}
	index, known := e.devices[dev]
	if !known {
		if index, err = e.index(dev); err != nil {
			return err
		}
		e.devices[dev] = index
	}
	to := &unix.SockaddrLinklayer{Protocol: networkOrder(unix.ETH_P_IP), Ifindex: index, Halen: uint8(len(hw))}
	copy(to.Addr[:], hw)
	if err := unix.Sendto(e.packets, datagram(payload, own, e.port), 0, to); err != nil {
		delete(e.devices, dev) // a device that is made anew has another index
		return fmt.Errorf("sending an echo on %s: %w", dev, err)
	}
	return nil
}

// index returns the index of a device.
func (e *Echoes) index(dev string) (int, error) {
	ifr, err := unix.NewIfreq(dev)
	if err != nil {
		return 0, err
	}
	if err := unix.IoctlIfreq(e.packets, unix.SIOCGIFINDEX, ifr); err != nil {
		return 0, fmt.Errorf("finding device %s: %w", dev, err)
	}
	return int(ifr.Uint32()), nil
}

// datagram returns an IPv4 packet with a datagram from an address to a port of the same address.
func datagram(payload []byte, own netip.AddrPort, port uint16) []byte {
	const ip, udp = 20, 8
	b := make([]byte, ip+udp, ip+udp+len(payload))
	b[0] = 4<<4 | ip/4
	binary.BigEndian.PutUint16(b[2:], uint16(ip+udp+len(payload)))
	b[6] = 0x40 // don't fragment
	b[8] = 64   // TTL
	b[9] = unix.IPPROTO_UDP
	copy(b[srcOffset:], own.Addr().AsSlice())
	copy(b[dstOffset:], own.Addr().AsSlice())
	sum := uint32(0)
	for i := 0; i < ip; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(b[csumOffset:], ^uint16(sum+sum>>16))
	binary.BigEndian.PutUint16(b[ip:], own.Port())
	binary.BigEndian.PutUint16(b[ip+2:], port)
	binary.BigEndian.PutUint16(b[ip+4:], uint16(udp+len(payload))) // no checksum: the nonce has to be right
	return append(b, payload...)
}

// Close closes the socket, which ends Receive.
func (e *Echoes) Close() error {
	unix.Close(e.packets)
	return e.conn.Close()
}
