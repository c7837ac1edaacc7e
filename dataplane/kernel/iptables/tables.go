//go:build linux

// Package iptables has an owner's chains in the tables of iptables, the jumps to them from the
// chains of others, and the ipsets that they match on. It works with both kinds of iptables: with
// the old one and with the one that keeps its rules in nftables.
package iptables

import (
	"fmt"
	"slices"
	"strings"

	"subctl/dataplane"
	"subctl/dataplane/kernel/netlink"
	"subctl/dataplane/kernel/store"
)

// Tables are the tables of iptables of one network namespace, restricted to the chains and sets of
// an owner.
type Tables struct {
	owner   dataplane.Owner
	conn    *netlink.Conn
	program *program
}

// New returns the tables. It changes nothing, and runs no program.
func New(owner dataplane.Owner, conn *netlink.Conn, home netlink.Home) *Tables {
	return &Tables{owner: owner, conn: conn, program: &program{conn: conn, home: home}}
}

// Stores returns the stores of sets and of chains.
func (t *Tables) Stores() []store.Store { return []store.Store{sets{t}, chains{t}} }

// hooks are the chains from which rules may jump to ours.
var hooks = []string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}

// Matters reports whether a chain is one of an owner, or one from which rules may jump to it.
func Matters(chain string) bool { return slices.Contains(hooks, chain) || anyOwner(chain) }

// SetCounts returns the names of all sets of ours, and how many members each has.
func SetCounts(c *netlink.Conn) (string, error) {
	s := sets{&Tables{conn: c}}
	names, err := s.named(anyOwner)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, name := range names {
		n, err := s.count(name)
		if err != nil && !netlink.Gone(err) {
			return "", err
		}
		fmt.Fprintln(&b, name, n)
	}
	return b.String(), nil
}
