package dataplane

import "time"

// CableState is what a kernel, or the program that stands in for it, says about one
// encrypted cable. It is not part of a State: it is looked at, never planned.
type CableState struct {
	// Device is the one that the cable's packets go through.
	Device string
	// Peer tells the cables of a device apart: a WireGuard public key in base64, or the
	// name of an IPsec tunnel.
	Peer string
	// Up says that there are keys in use with the other side.
	Up bool
	// Handshake is when keys were last agreed on; zero if never.
	Handshake time.Time
	// Rx and Tx count the bytes that came in and went out, since whenever.
	Rx, Tx uint64
	// Message says, for people, what keeps the cable from being up, or, if it is Up, from
	// having keys under its present settings; empty if nothing is known.
	Message string
}

// Cabler is a Target that can tell the state of its encrypted cables.
type Cabler interface {
	CableStates() ([]CableState, error)
	// Restarts counts, by name, how often a program that cables depend on was found dead, or
	// not answering, and was started again.
	Restarts() map[string]int
}
