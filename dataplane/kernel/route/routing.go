//go:build linux

// Package route has what packets are routed by: the routes, rules, next hops, neighbours and
// addresses of an owner, and what other programs do that conflicts with them. The devices that
// these name are in package link.
package route

import (
	"subctl/dataplane"
	"subctl/dataplane/kernel/link"
	"subctl/dataplane/kernel/netlink"
	"subctl/dataplane/kernel/store"
)

// Routing is what one network namespace routes by, restricted to the objects of an owner.
type Routing struct {
	owner     dataplane.Owner
	conn      *netlink.Conn
	devices   *link.Devices
	conflicts map[dataplane.Kind][]string // see Conflicts, by the kind of objects that was listed
}

// New returns the routing. It changes nothing.
func New(owner dataplane.Owner, conn *netlink.Conn, devices *link.Devices) *Routing {
	return &Routing{owner: owner, conn: conn, devices: devices, conflicts: map[dataplane.Kind][]string{}}
}

// Stores returns the stores of addresses, neighbours, next hops, routes and rules.
func (r *Routing) Stores() []store.Store {
	return []store.Store{addrs{r}, neighs{r}, nexthops{r}, routes{r}, rules{r}}
}
