//go:build linux

package netlink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Conn is a pair of sockets: one of family NETLINK_ROUTE and one of family
// NETLINK_NETFILTER. They belong to the network namespace in which Dial was called,
// whichever thread uses them. A Conn is safe for concurrent use.
type Conn struct {
	route, netfilter *socket
}

// Dial opens the sockets in the calling thread's network namespace.
func Dial() (*Conn, error) {
	route, err := openSocket(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	netfilter, err := openSocket(unix.NETLINK_NETFILTER)
	if err != nil {
		route.close()
		return nil, err
	}
	return &Conn{route, netfilter}, nil
}

// DialNetfilter opens the socket of family NETLINK_NETFILTER alone.
func DialNetfilter() (*Conn, error) {
	netfilter, err := openSocket(unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, err
	}
	return &Conn{netfilter: netfilter}, nil
}

// Close closes the sockets.
func (c *Conn) Close() {
	if c.route != nil {
		c.route.close()
	}
	c.netfilter.close()
}

// Request sends a message of a family and returns the payloads of the answers.
func (c *Conn) Request(family, typ, flags int, payload []byte) ([][]byte, error) {
	if family == unix.NETLINK_NETFILTER {
		return c.netfilter.request(typ, flags, payload)
	}
	return c.route.request(typ, flags, payload)
}

// dumpTries bounds how often a dump is repeated that the kernel marked as
// inconsistent because something changed meanwhile.
const dumpTries = 5

// Dump sends a message of a family and returns the payloads of all answers, which
// describe one instant.
func (c *Conn) Dump(family, typ int, payload []byte) (msgs [][]byte, err error) {
	for range dumpTries {
		msgs, err = c.Request(family, typ, unix.NLM_F_DUMP, payload)
		if !errors.Is(err, errInterrupted) {
			break
		}
	}
	return msgs, err
}

// Each sends a message of family NETLINK_NETFILTER, and calls do with the payload of each answer,
// which do must not keep. The answers of a table that changes meanwhile may have an entry twice, or
// lack it.
func (c *Conn) Each(typ int, payload []byte, do func([]byte)) error {
	err := c.netfilter.each(typ, unix.NLM_F_DUMP, payload, do)
	if errors.Is(err, errInterrupted) {
		return nil
	}
	return err
}

// The flags of a message that creates an object, and of a message that replaces an
// object or creates it.
const (
	Create  = unix.NLM_F_CREATE | unix.NLM_F_EXCL
	Replace = unix.NLM_F_CREATE | unix.NLM_F_REPLACE
)

// Change sends a change of family NETLINK_ROUTE and waits for its acknowledgement.
func (c *Conn) Change(typ, flags int, payload []byte) error {
	_, err := c.Request(unix.NETLINK_ROUTE, typ, flags|unix.NLM_F_ACK, payload)
	return err
}

// Generation returns a number that changes with every change to nftables in the
// network namespace, or 0 if the kernel does not report one.
func (c *Conn) Generation() uint32 {
	msgs, err := c.Request(unix.NETLINK_NETFILTER, unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETGEN, 0,
		NetfilterHeader(unix.AF_UNSPEC))
	if err != nil || len(msgs) != 1 {
		return 0
	}
	for t, v := range Attrs(msgs[0][nl.SizeofNfgenmsg:]) {
		if t == unix.NFTA_GEN_ID && len(v) == 4 {
			return binary.BigEndian.Uint32(v)
		}
	}
	return 0
}

// NetfilterHeader returns the header with which every message of family
// NETLINK_NETFILTER begins (struct nfgenmsg).
func NetfilterHeader(family uint8) []byte { return []byte{family, unix.NFNETLINK_V0, 0, 0} }

// Namespace returns the name of the calling thread's network namespace, such as
// "net:[4026531840]".
func Namespace() (string, error) {
	s, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		return "", fmt.Errorf("looking for network namespace: %w", err)
	}
	return s, nil
}
