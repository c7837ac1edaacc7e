// Package drivers lists the cable drivers there are.
package drivers

import (
	"strings"

	"subctl/cable"
	"subctl/cable/ipsec"
	"subctl/cable/vxlan"
	"subctl/cable/wireguard"
)

// All returns every driver, in the order in which users are told of them.
func All() []cable.Driver {
	return []cable.Driver{vxlan.Driver{}, wireguard.Driver{}, wireguard.Combined{}, ipsec.Driver{}, ipsec.Combined{}}
}

// Default is the driver of who names none.
const Default = vxlan.Name

// Names returns the names of all drivers, separated by commas.
func Names() string {
	var names []string
	for _, d := range All() {
		names = append(names, d.Name())
	}
	return strings.Join(names, ", ")
}

// Find returns the driver of a name, or of an alias of it; nil if there is none.
func Find(name string) cable.Driver {
	name = cable.Canonical(name)
	for _, d := range All() {
		if d.Name() == name {
			return d
		}
	}
	return nil
}
