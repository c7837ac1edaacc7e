package dataplane

import "time"

// CableState is the state of one encrypted cable, as reported by the kernel or by the
// program that stands in for it. It is not part of a State: it is observed, never planned.
type CableState struct {
	// Device is the name of the device that the cable's packets pass through.
	Device string
	// Peer identifies the cable among the cables of its device: a WireGuard public key in
	// base64, or the name of an IPsec tunnel.
	Peer string
	// Up reports whether both ends have keys in use.
	Up bool
	// Handshake is the time at which keys were last agreed on, or zero if never.
	Handshake time.Time
	// Rx and Tx are the bytes received and sent. They may start from 0 again at any time.
	Rx, Tx uint64
	// Message is for people: what keeps the cable from being up or, if it is up, from
	// having keys under its present settings. It is empty if nothing is known.
	Message string
}

// Cabler is a Target that can report the state of its encrypted cables.
type Cabler interface {
	// CableStates returns the states of the cables, in no particular order.
	CableStates() ([]CableState, error)
	// Restarts returns, by name, how often a program that cables depend on was found dead or
	// unresponsive, and was started again.
	Restarts() map[string]int
}
