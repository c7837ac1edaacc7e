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

// Default is the driver of a cluster that names none.
const Default = vxlan.Name

// Names returns the names of all drivers, separated by commas.
func Names() string { return names(All()) }

func names(ds []cable.Driver) string {
	var out []string
	for _, d := range ds {
		out = append(out, d.Name())
	}
	return strings.Join(out, ", ")
}

// Announced returns the settings that a gateway announces, by driver.
func Announced(g cable.Gateway) map[string]cable.Config {
	settings := map[string]cable.Config{}
	for _, d := range All() {
		if a, ok := d.(cable.Announcer); ok {
			settings[d.Name()] = a.Announced(g)
		}
	}
	return settings
}

// Parse returns the driver of a name, or of an alias of it. The error lists those that
// there are, with the one that was most likely meant.
func Parse(name string) (cable.Driver, error) { return cable.FindDriver(name, All()) }

// Find returns the driver of a name, or of an alias of it; nil if there is none.
func Find(name string) cable.Driver {
	d, _ := Parse(name)
	return d
}
