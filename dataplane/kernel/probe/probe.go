//go:build linux

// Package probe has the sockets and packets by which a node finds out what paths do: datagrams
// between gateways, echoes that another node forwards back, a packet that the node's own rules
// forward or drop, and announcements by ARP. What the answers mean is up to the callers.
package probe

import "encoding/binary"

// Offsets in the IPv4 header (RFC 791).
const (
	csumOffset = 10
	srcOffset  = 12
	dstOffset  = 16
)

// networkOrder returns a number with its bytes as the kernel wants them in an address.
func networkOrder(n uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, n))
}
