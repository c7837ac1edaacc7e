//go:build linux

package iptables

import (
	"crypto/sha256"
	"fmt"
	"io"

	"subctl/dataplane/kernel/netlink"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// The newer iptables keeps its rules in nftables. This file determines over netlink, in a
// millisecond, whether anything has changed that the store of chains observes: where
// kube-proxy has thousands of rules, iptables-save takes 0.1 s, and kube-proxy changes some
// of them all the time.

// signature returns a digest of the rules in the built-in chains and in the chains of
// subctl's owners, or "" if they cannot be read.
func signature(c *netlink.Conn) string {
	msgs, err := c.Dump(unix.NETLINK_NETFILTER, unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETCHAIN,
		netlink.NetfilterHeader(unix.AF_INET))
	if err != nil {
		return ""
	}
	h := sha256.New()
	for _, m := range msgs {
		var table, name string
		for t, v := range netlink.Attrs(m[nl.SizeofNfgenmsg:]) {
			switch t {
			case unix.NFTA_CHAIN_TABLE:
				table = netlink.Text(v)
			case unix.NFTA_CHAIN_NAME:
				name = netlink.Text(v)
			}
		}
		if !Matters(name) {
			continue
		}
		fmt.Fprintf(h, "%q %q ", table, name)
		if err := digest(c, h, table, name); err != nil {
			return ""
		}
	}
	return string(h.Sum(nil))
}

// digest writes a chain's rules to w, without their counters. (A rule's handle is not
// enough: a rule that replaces another gets the same handle.)
func digest(c *netlink.Conn, w io.Writer, table, chain string) error {
	q := netlink.PutString(netlink.NetfilterHeader(unix.AF_INET), unix.NFTA_RULE_TABLE, table)
	q = netlink.PutString(q, unix.NFTA_RULE_CHAIN, chain)
	msgs, err := c.Dump(unix.NETLINK_NETFILTER, unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETRULE, q)
	for _, m := range msgs {
		for t, v := range netlink.Attrs(m[nl.SizeofNfgenmsg:]) {
			switch t {
			case unix.NFTA_RULE_USERDATA: // comments
				_, _ = w.Write(v) // of a hash: never fails
			case unix.NFTA_RULE_EXPRESSIONS:
				for _, expr := range netlink.Attrs(v) {
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
	for t, v := range netlink.Attrs(expr) {
		if t == unix.NFTA_EXPR_NAME {
			return netlink.Text(v) == "counter"
		}
	}
	return false
}
