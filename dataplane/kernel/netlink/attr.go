//go:build linux

package netlink

import (
	"encoding/binary"
	"iter"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// PutAttr appends an attribute to a message.
func PutAttr(b []byte, typ uint16, value []byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(unix.SizeofRtAttr+len(value)))
	b = binary.NativeEndian.AppendUint16(b, typ)
	b = append(b, value...)
	for len(b) != align(len(b)) {
		b = append(b, 0)
	}
	return b
}

// PutU32 appends an attribute that holds a number.
func PutU32(b []byte, typ uint16, v uint32) []byte {
	return PutAttr(b, typ, binary.NativeEndian.AppendUint32(nil, v))
}

// PutString appends an attribute that holds a text.
func PutString(b []byte, typ uint16, s string) []byte {
	return PutAttr(b, typ, append([]byte(s), 0))
}

// Attrs returns the attributes of a message as types and values. The types are without
// their flags. The sequence ends at the first malformed attribute.
func Attrs(b []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for t, v, rest, ok := NextAttr(b); ok && yield(t, v); t, v, rest, ok = NextAttr(rest) {
		}
	}
}

// NextAttr returns the first attribute of a message, and what follows it; false if there is none,
// or a malformed one. It is for very many small messages, for which the functions that Attrs needs
// take more time than the attributes.
func NextAttr(b []byte) (typ uint16, value, rest []byte, ok bool) {
	if len(b) < unix.SizeofRtAttr {
		return 0, nil, nil, false
	}
	n := int(binary.NativeEndian.Uint16(b))
	if n < unix.SizeofRtAttr || n > len(b) {
		return 0, nil, nil, false
	}
	return binary.NativeEndian.Uint16(b[2:]) & nl.NLA_TYPE_MASK, b[unix.SizeofRtAttr:n], b[min(align(n), len(b)):], true
}

// U32 returns the number that b begins with, or 0 if b is too short.
func U32(b []byte) uint32 {
	if len(b) < 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(b)
}

// Text returns b up to its first zero byte.
func Text(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

// Addr returns b as an address, or the zero Addr if b is none.
func Addr(b []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(b)
	return a.Unmap()
}

// Family returns the address family of a; AF_INET for the zero Addr. A next hop of AF_INET6 cannot
// be on a device without IPv6.
func Family(a netip.Addr) uint8 {
	if a.Is6() {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

func align(n int) int { return (n + unix.NLMSG_ALIGNTO - 1) &^ (unix.NLMSG_ALIGNTO - 1) }

// Number returns the attribute of a type that follows a header.
func Number(b []byte, header int, attr uint16) (uint32, bool) {
	for t, v := range Attrs(b[min(header, len(b)):]) {
		if t == attr {
			return U32(v), true
		}
	}
	return 0, false
}
