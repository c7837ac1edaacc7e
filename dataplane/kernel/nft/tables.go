//go:build linux

// Package nft has an owner's tables of nftables, whose rules are text: it writes changes of rules
// by nft(8) and changes of elements over netlink, reads tables and counters, and ends the
// connections that a change concerns. What iptables keeps in nftables is in package iptables.
package nft

import (
	"subctl/dataplane"
	"subctl/dataplane/kernel/conntrack"
	"subctl/dataplane/kernel/netlink"
	"subctl/dataplane/kernel/store"

	"golang.org/x/sys/unix"
)

// Tables are the tables of nftables of one network namespace, restricted to those of an owner.
type Tables struct {
	owner dataplane.Owner
	conn  *netlink.Conn
	home  netlink.Home
	flows *conntrack.Table

	seen   map[dataplane.Nftable]nftSeen           // as they were read last
	wanted map[dataplane.Nftable]dataplane.Ruleset // as they were put last
	left   map[dataplane.Nftable]rulesetLeft       // what is still to do after they have changed

	// TablesOfIPv6 reports whether nftables has tables for IPv6. Tests replace it.
	TablesOfIPv6 func() bool
}

// New returns the tables. It changes nothing, and runs no program.
func New(owner dataplane.Owner, conn *netlink.Conn, home netlink.Home, flows *conntrack.Table) *Tables {
	return &Tables{
		owner:        owner,
		conn:         conn,
		home:         home,
		flows:        flows,
		seen:         map[dataplane.Nftable]nftSeen{},
		wanted:       map[dataplane.Nftable]dataplane.Ruleset{},
		left:         map[dataplane.Nftable]rulesetLeft{},
		TablesOfIPv6: tablesOfIPv6,
	}
}

// Stores returns the store of tables.
func (s *Tables) Stores() []store.Store { return []store.Store{rulesets{s}} }

// Has reports whether there is a table of family ip with a name.
func Has(conn *netlink.Conn, name string) (bool, error) {
	_, err := request(conn, family4, unix.NFT_MSG_GETTABLE, 0, unix.NFTA_TABLE_NAME, name)
	return err == nil, netlink.OrGone(err)
}
