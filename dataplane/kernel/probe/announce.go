//go:build linux

package probe

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Announce tells the neighbours at a device of the calling thread's network namespace that an IPv4
// address is at its MAC address, by an ARP Announcement (RFC 5227, section 3). Those that know
// another MAC address for it use this one from then on; the others ignore it.
func Announce(device string, ip netip.Addr) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("announcing %v on device %s: %w", ip, device, err)
		}
	}()
	d, err := net.InterfaceByName(device)
	if err != nil {
		return err
	}
	if len(d.HardwareAddr) != 6 || !ip.Is4() {
		return errors.New("ARP is for IPv4 on Ethernet")
	}
	// A socket of protocol 0 receives nothing.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	to := &unix.SockaddrLinklayer{
		Protocol: networkOrder(unix.ETH_P_ARP),
		Ifindex:  d.Index,
		Halen:    6,
		Addr:     [8]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
	}
	packet := []byte{0, 1, 8, 0, 6, 4, 0, 1} // Ethernet, IPv4, the sizes of addresses, a request
	packet = append(packet, d.HardwareAddr...)
	packet = append(packet, ip.AsSlice()...)
	packet = append(packet, make([]byte, 6)...)
	packet = append(packet, ip.AsSlice()...)
	return unix.Sendto(fd, packet, 0, to)
}
