package cable

import (
	"cmp"
	"fmt"

	"subctl/cable/keys"
	"subctl/dataplane"
)

// Properties describes the capabilities and requirements of a driver, which are the same for
// every pair of gateways.
type Properties struct {
	// Encrypts reports whether the packets of its cables are encrypted.
	Encrypts bool
	// PassesNAT reports whether its cables work through NAT.
	PassesNAT bool
	// MaxGateways is the maximum number of gateways of one remote cluster to which it connects
	// at once; 0 means no limit. Where a cluster has several, another driver stands in: StandIn.
	MaxGateways int
	// Engine is the protocol for which the node needs an implementation.
	Engine Protocol
	// Parts are the names of the drivers that it combines, in the order in its name; nil if it
	// is not a combined cable.
	Parts []string
}

// Protocol is a protocol that not every node supports; see Local.Engine.
type Protocol string

// The protocols.
const (
	ProtocolNone      Protocol = "" // no protocol beyond what every kernel supports
	ProtocolWireGuard Protocol = "WireGuard"
	ProtocolIPsec     Protocol = "IPsec"
)

// Engine returns the implementation of a protocol on the node.
func (l Local) Engine(p Protocol) dataplane.Engine {
	switch p {
	case ProtocolWireGuard:
		return l.WireGuard
	case ProtocolIPsec:
		return l.IPsec
	}
	return dataplane.Engine{Name: dataplane.EngineKernel}
}

// LacksEngine returns an error if the node has no implementation of a protocol.
func (l Local) LacksEngine(p Protocol) error {
	if e := l.Engine(p); e.Name == "" {
		return fmt.Errorf("this node has no %s: it lacks %s", p, cmp.Or(e.Missing, "an implementation"))
	}
	return nil
}

// RefusesKeys returns an error if no key for a purpose of package keys can be derived from the
// keys of the two clusters. name is the name of that key in the error.
func (l Local) RefusesKeys(p Peer, purpose, name string) error {
	if p.PublicKey == (keys.PublicKey{}) {
		return fmt.Errorf("cluster %s announces no cluster key, which the %s requires: run subctl join there again",
			p.Cluster, name)
	}
	_, err := l.Keys.Pair(p.Cluster, p.PublicKey, purpose)
	return err
}

// Handshaker is a Driver whose cables carry nothing before their two ends have agreed on keys. They
// do so again whenever the device is made anew.
type Handshaker interface {
	// StateOf returns dataplane.CableState.Device and dataplane.CableState.Peer of the cable to a
	// gateway.
	StateOf(Gateway) (device, peer string)
}

// Announcer is a Driver whose gateways announce settings that must be the same at both ends.
type Announcer interface {
	// Announced returns the settings that a gateway announces.
	Announced(Gateway) Config
}
