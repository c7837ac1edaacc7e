//go:build linux

package netlink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// socket is a netlink socket that stays open. The netlink library's sockets have two
// disadvantages: the library opens one for each request that it has not built itself, and
// it panics when the kernel ends a dump with an explanation (NLMSG_DONE with
// NLM_F_ACK_TLVS, in v1.3.1).
type socket struct {
	mu  sync.Mutex
	fd  int
	seq uint32
	buf []byte
}

// patience bounds the time to wait for the kernel, which answers at once or never.
const patience = 10 * time.Second

// openSocket opens a socket in the calling thread's network namespace.
func openSocket(family int) (*socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, family)
	if err != nil {
		return nil, fmt.Errorf("opening netlink socket, family %d: %w", family, err)
	}
	limit := unix.NsecToTimeval(patience.Nanoseconds())
	err = errors.Join(unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit))
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("setting up netlink socket, family %d: %w", family, err)
	}
	// Neither option is essential: error messages (since Linux 4.12), and dumps filtered by
	// table or device (since 4.20; the stores filter again anyway).
	_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1)
	_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK, 1)
	// The messages of a dump are as long as the buffer, up to 32 kB (netlink_dump in
	// net/netlink/af_netlink.c). An error repeats the message that it is about.
	return &socket{fd: fd, buf: make([]byte, 1<<16)}, nil
}

func (s *socket) close() { unix.Close(s.fd) }

// errInterrupted means that the objects which a dump lists changed meanwhile.
var errInterrupted = errors.New("dump interrupted by a change")

// request sends one message and returns the payloads of the answers.
func (s *socket) request(typ, flags int, payload []byte) (out [][]byte, err error) {
	err = s.each(typ, flags, payload, func(body []byte) { out = append(out, body) })
	if err != nil {
		return nil, err
	}
	return out, nil
}

// each sends a request, and calls do with the payload of each answer.
func (s *socket) each(typ, flags int, payload []byte, do func([]byte)) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seq++
	msg := make([]byte, 0, unix.SizeofNlMsghdr+len(payload))
	msg = binary.NativeEndian.AppendUint32(msg, uint32(unix.SizeofNlMsghdr+len(payload)))
	msg = binary.NativeEndian.AppendUint16(msg, uint16(typ))
	msg = binary.NativeEndian.AppendUint16(msg, uint16(flags|unix.NLM_F_REQUEST))
	msg = binary.NativeEndian.AppendUint32(msg, s.seq)
	msg = append(binary.NativeEndian.AppendUint32(msg, 0), payload...)
	err = Retry(func() error { return unix.Sendto(s.fd, msg, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}) })
	if err != nil {
		return fmt.Errorf("sending: %w", err)
	}
	interrupted := false
	for {
		b, err := s.receive()
		if err != nil {
			return err
		}
		for len(b) >= unix.SizeofNlMsghdr {
			h := header(b)
			if h.size < unix.SizeofNlMsghdr || h.size > len(b) {
				return fmt.Errorf("receiving: message of %d bytes in %d", h.size, len(b))
			}
			body := b[unix.SizeofNlMsghdr:h.size]
			b = b[min(align(h.size), len(b)):]
			if h.seq != s.seq {
				continue // an answer to a request that has timed out
			}
			interrupted = interrupted || h.flags&unix.NLM_F_DUMP_INTR != 0
			switch h.typ {
			case unix.NLMSG_ERROR, unix.NLMSG_DONE:
				if err := answer(h, body); err != nil {
					return err
				}
				if interrupted {
					return errInterrupted
				}
				return nil
			}
			do(body)
			if h.flags&unix.NLM_F_MULTI == 0 && flags&unix.NLM_F_ACK == 0 {
				return nil
			}
		}
	}
}

// receive returns a copy of the next datagram.
func (s *socket) receive() ([]byte, error) {
	var n int
	err := Retry(func() (err error) {
		n, _, err = unix.Recvfrom(s.fd, s.buf, unix.MSG_TRUNC)
		return err
	})
	if err == nil && n > len(s.buf) {
		err = fmt.Errorf("%d bytes, and room for %d", n, len(s.buf))
	}
	if err != nil {
		return nil, fmt.Errorf("receiving: %w", err)
	}
	return append([]byte(nil), s.buf[:n]...), nil
}

// head is struct nlmsghdr.
type head struct {
	size       int
	typ, flags uint16
	seq        uint32
}

func header(b []byte) head {
	return head{
		size: int(
			U32(b)),
		typ:   binary.NativeEndian.Uint16(b[4:]),
		flags: binary.NativeEndian.Uint16(b[6:]),
		seq:   U32(b[8:]),
	}
}

// answer returns the error at the end of an answer, with the kernel's message if there is
// one. In NLMSG_ERROR the request is repeated before the message, in NLMSG_DONE it is not.
func answer(h head, body []byte) error {
	if len(body) < 4 || int32(U32(body)) >= 0 {
		return nil
	}
	errno := unix.Errno(-int32(U32(body)))
	rest := body[4:]
	if h.typ == unix.NLMSG_ERROR && len(rest) >= unix.SizeofNlMsghdr {
		size := unix.SizeofNlMsghdr
		if h.flags&unix.NLM_F_CAPPED == 0 {
			size = align(header(rest).size)
		}
		rest = rest[min(size, len(rest)):]
	}
	if h.flags&unix.NLM_F_ACK_TLVS != 0 {
		for t, v := range Attrs(rest) {
			if t == 1 { // NLMSGERR_ATTR_MSG
				return fmt.Errorf("%w: %s", errno, Text(v))
			}
		}
	}
	return errno
}
