package nstest

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
)

// IPv4 returns an IPv4 packet with its checksum.
func IPv4(src, dst string, proto byte, payload []byte) []byte {
	b := []byte{0x45, 0, 0, 0, 0, 1, 0, 0, 64, proto, 0, 0}
	b = append(append(b, netip.MustParseAddr(src).AsSlice()...), netip.MustParseAddr(dst).AsSlice()...)
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)+len(payload)))
	binary.BigEndian.PutUint16(b[10:], checksum(b))
	return append(b, payload...)
}

// Fragments returns an IPv4 packet in two fragments, the first of which has so many bytes of the
// payload, a multiple of 8.
func Fragments(packet []byte, first int) [][]byte {
	fragment := func(payload []byte, field int) []byte {
		b := append(slices.Clone(packet[:20]), payload...)
		for at, n := range map[int]int{2: len(b), 6: field, 10: 0} {
			binary.BigEndian.PutUint16(b[at:], uint16(n))
		}
		binary.BigEndian.PutUint16(b[10:], checksum(b[:20]))
		return b
	}
	const moreFragments = 0x2000
	return [][]byte{fragment(packet[20:20+first], moreFragments), fragment(packet[20+first:], first/8)}
}

// TTL returns an IPv4 packet with another time to live.
func TTL(packet []byte, ttl byte) []byte {
	b := slices.Clone(packet)
	b[8] = ttl
	b[10] = 0
	b[11] = 0
	binary.BigEndian.PutUint16(b[10:], checksum(b[:20]))
	return b
}

// UDP returns a datagram without checksum, as the payload of an IPv4 packet.
func UDP(from, to int, payload []byte) []byte {
	var b []byte
	for _, n := range []int{from, to, 8 + len(payload), 0} {
		b = binary.BigEndian.AppendUint16(b, uint16(n))
	}
	return append(b, payload...)
}

// ICMPError returns an ICMP message about a packet, with its checksum, as the payload of an IPv4
// packet.
func ICMPError(typ, code byte, about []byte) []byte {
	b := append([]byte{typ, code, 0, 0, 0, 0, 0, 0}, about...)
	binary.BigEndian.PutUint16(b[2:], checksum(b))
	return b
}

// checksum returns the Internet checksum (RFC 1071) of b.
func checksum(b []byte) uint16 {
	sum := uint32(0)
	for i := range b {
		sum += uint32(b[i]) << (8 * (1 - i%2))
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// VXLAN returns the payload of a datagram of VXLAN with an IPv4 packet for the device with the MAC
// address mac. tag precedes the EtherType.
func VXLAN(vni int, mac string, packet []byte, tag ...byte) []byte {
	to, err := net.ParseMAC(mac)
	if err != nil {
		panic(err) // a mistake in the test
	}
	b := binary.BigEndian.AppendUint32([]byte{8, 0, 0, 0}, uint32(vni)<<8)
	b = append(append(b, to...), 2, 0, 0, 0, 0, 9)
	return append(append(append(b, tag...), 8, 0), packet...)
}
