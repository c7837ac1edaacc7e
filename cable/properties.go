package cable

import (
	"cmp"
	"fmt"

	"subctl/cable/keys"
	"subctl/dataplane"
)

// Properties specifies what a driver can do and what it needs, for every pair of gateways
// alike.
type Properties struct {
	// Encrypts reports whether the packets of its cables are encrypted.
	Encrypts bool
	// PassesNAT reports whether its cables pass address translations.
	PassesNAT bool
	// MaxGateways is the number of gateways of one remote cluster that it can connect to at
	// once; 0 if there is no limit.
	MaxGateways int
	// Engine is the protocol for which the node needs an engine.
	Engine Protocol
	// Parts are the names of the drivers that it combines, in the order of its own name; nil
	// if it combines none.
	Parts []string
}

// Protocol is a protocol that not every node can handle: see Local.Engine.
type Protocol string

// The protocols.
const (
	ProtocolNone      Protocol = "" // what every kernel handles
	ProtocolWireGuard Protocol = "WireGuard"
	ProtocolIPsec     Protocol = "IPsec"
)

// Engine returns what handles the packets of a protocol on the node.
func (l Local) Engine(p Protocol) dataplane.Engine {
	switch p {
	case ProtocolWireGuard:
		return l.WireGuard
	case ProtocolIPsec:
		return l.IPsec
	}
	return dataplane.Engine{Name: dataplane.EngineKernel}
}

// LacksEngine returns an error if the node has no engine for a protocol.
func (l Local) LacksEngine(p Protocol) error {
	if e := l.Engine(p); e.Name == "" {
		return fmt.Errorf("this node has no %s: it lacks %s", p, cmp.Or(e.Missing, "an engine for it"))
	}
	return nil
}

// RefusesKeys returns an error if the keys of the two clusters give no key for a purpose of
// package keys. The error calls that key by its name.
func (l Local) RefusesKeys(p Peer, purpose, name string) error {
	if p.PublicKey == (keys.PublicKey{}) {
		return fmt.Errorf("cluster %s has announced no cluster key, without which there is no %s: run subctl join there again", p.Cluster, name)
	}
	_, err := l.Keys.Pair(p.Cluster, p.PublicKey, purpose)
	return err
}

// Announcer is a Driver of which gateways announce settings that both ends need to have in
// common.
type Announcer interface {
	// Announced returns the settings that a gateway announces.
	Announced(Gateway) Config
}
