//go:build linux

package kernel

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// The newer iptables keeps its rules in nftables. This file tells by netlink, in
// a millisecond, whether anything changed that chains would tell of: where
// kube-proxy has some thousand rules, iptables-save takes 0.1 s, and kube-proxy
// changes some of them all the time.

// generation is a number that changes with every change to nftables in this
// network namespace; 0 if it is not known.
func (c conn) generation() uint32 {
	msgs, err := c.request(unix.NETLINK_NETFILTER, unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETGEN, 0, nfgenmsg(unix.AF_UNSPEC))
	if err != nil || len(msgs) != 1 {
		return 0
	}
	for t, v := range attrs(msgs[0][nl.SizeofNfgenmsg:]) {
		if t == unix.NFTA_GEN_ID && len(v) == 4 {
			return binary.BigEndian.Uint32(v)
		}
	}
	return 0
}

// signature is a digest of the rules in the built-in chains and in those of
// subctl's owners; empty if it cannot be told.
func (c conn) signature() string {
	msgs, err := c.dump(unix.NETLINK_NETFILTER, unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETCHAIN, nfgenmsg(unix.AF_INET))
	if err != nil {
		return ""
	}
	h := sha256.New()
	for _, m := range msgs {
		var table, name string
		for t, v := range attrs(m[nl.SizeofNfgenmsg:]) {
			switch t {
			case unix.NFTA_CHAIN_TABLE:
				table = text(v)
			case unix.NFTA_CHAIN_NAME:
				name = text(v)
			}
		}
		if !slices.Contains(hooks, name) && !anyOwner(name) {
			continue
		}
		fmt.Fprintf(h, "%q %q ", table, name)
		if err := c.digest(h, table, name); err != nil {
			return ""
		}
	}
	return string(h.Sum(nil))
}

// digest writes a chain's rules to w, less their counters. (A rule's handle does
// not do: one that takes the place of another gets the same.)
func (c conn) digest(w io.Writer, table, chain string) error {
	q := putString(nfgenmsg(unix.AF_INET), unix.NFTA_RULE_TABLE, table)
	q = putString(q, unix.NFTA_RULE_CHAIN, chain)
	msgs, err := c.dump(unix.NETLINK_NETFILTER, unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETRULE, q)
	for _, m := range msgs {
		for t, v := range attrs(m[nl.SizeofNfgenmsg:]) {
			switch t {
			case unix.NFTA_RULE_USERDATA: // comments
				_, _ = w.Write(v) // of a hash: never fails
			case unix.NFTA_RULE_EXPRESSIONS:
				for _, expr := range attrs(v) {
					if !isCounter(expr) {
						_, _ = w.Write(expr)
					}
				}
			}
		}
	}
	return err
}

func isCounter(expr []byte) bool {
	for t, v := range attrs(expr) {
		if t == unix.NFTA_EXPR_NAME {
			return text(v) == "counter"
		}
	}
	return false
}
