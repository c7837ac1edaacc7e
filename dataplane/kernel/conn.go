//go:build linux

package kernel

import (
	"encoding/binary"
	"errors"
	"iter"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// conn speaks netlink by hand, where the netlink library has no words (next hops,
// next hop IDs of routes, many members of a set at once), or would list all
// there is where a table or a device is wanted.
type conn map[int]*socket

// dial opens sockets in the calling thread's network namespace.
func dial() (conn, error) {
	c := conn{}
	for _, family := range []int{unix.NETLINK_ROUTE, unix.NETLINK_NETFILTER} {
		s, err := openSocket(family)
		if err != nil {
			c.close()
			return nil, err
		}
		c[family] = s
	}
	return c, nil
}

func (c conn) close() {
	for _, s := range c {
		s.close()
	}
}

// request sends one message and returns the payloads of the answers.
func (c conn) request(family, typ, flags int, payload []byte) ([][]byte, error) {
	return c[family].request(typ, flags, payload)
}

// dumpTries bounds how often a dump is repeated that the kernel marked as
// inconsistent because something changed meanwhile.
const dumpTries = 5

// dump sends one message and returns all answers, taken at one instant.
func (c conn) dump(family, typ int, payload []byte) (msgs [][]byte, err error) {
	for range dumpTries {
		msgs, err = c.request(family, typ, unix.NLM_F_DUMP, payload)
		if !errors.Is(err, errInterrupted) {
			break
		}
	}
	return msgs, err
}

// route sends a change to rtnetlink.
func (c conn) route(typ, flags int, payload []byte) error {
	_, err := c.request(unix.NETLINK_ROUTE, typ, flags|unix.NLM_F_ACK, payload)
	return err
}

// The flags of a message that creates an object, and of one that replaces an
// object if there is one.
const (
	create  = unix.NLM_F_CREATE | unix.NLM_F_EXCL
	replace = unix.NLM_F_CREATE | unix.NLM_F_REPLACE
)

// putAttr appends an attribute to a message.
func putAttr(b []byte, typ uint16, value []byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(unix.SizeofRtAttr+len(value)))
	b = binary.NativeEndian.AppendUint16(b, typ)
	b = append(b, value...)
	for len(b) != align(len(b)) {
		b = append(b, 0)
	}
	return b
}

func putU32(b []byte, typ uint16, v uint32) []byte {
	return putAttr(b, typ, binary.NativeEndian.AppendUint32(nil, v))
}

func putString(b []byte, typ uint16, s string) []byte {
	return putAttr(b, typ, append([]byte(s), 0))
}

// attrs goes through the attributes of a message, without the flags in their types.
func attrs(b []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= unix.SizeofRtAttr {
			n := int(binary.NativeEndian.Uint16(b))
			if n < unix.SizeofRtAttr || n > len(b) {
				return
			}
			if !yield(binary.NativeEndian.Uint16(b[2:])&nl.NLA_TYPE_MASK, b[unix.SizeofRtAttr:n]) {
				return
			}
			b = b[min(align(n), len(b)):]
		}
	}
}

// u32 reads a number, 0 if there is none.
func u32(b []byte) uint32 {
	if len(b) < 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(b)
}

func text(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

func addr(b []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(b)
	return a.Unmap()
}

// family is the address family of a.
func family(a netip.Addr) uint8 {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// gone reports whether err says that the object is not there.
func gone(err error) bool {
	var nf netlink.LinkNotFoundError
	return errors.As(err, &nf) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) ||
		errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EADDRNOTAVAIL)
}

// orGone makes "gone already" a success.
func orGone(err error) error {
	if gone(err) {
		return nil
	}
	return err
}
