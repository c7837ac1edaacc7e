//go:build linux

// Package netlink exchanges messages with the Linux kernel over netlink sockets
// (RFC 3549): it opens sockets, sends requests, collects dumps, receives notifications,
// and encodes and decodes attributes and errors.
//
// It is a transport. It does not know which objects a plan holds, or who owns them: the
// stores beside it do. It is used where the library
// github.com/vishvananda/netlink has no function (next hops, next hop IDs of routes,
// many members of a set in one message), or where its function lists every object of the
// node although only the objects of one table or device are needed.
package netlink
