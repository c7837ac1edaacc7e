// Package drivers lists all cable drivers.
package drivers

import (
	"slices"
	"strings"

	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
	"subctl/cable/ipsec"
	"subctl/cable/vxlan"
	"subctl/cable/wireguard"
)

// All returns all drivers, in the order of the documentation.
func All() []cable.Driver {
	return []cable.Driver{vxlan.Driver{}, wireguard.Driver{}, wireguard.Combined{}, ipsec.Driver{}, ipsec.Combined{}}
}

// Default is the name of the default driver of clusters that do not specify one.
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

// SettingsOf returns the settings that the Submariner specifies in upstream's fields, by driver.
func SettingsOf(s v1alpha1.SubmarinerSpec) (map[string]cable.Config, error) {
	settings := map[string]cable.Config{}
	for _, d := range All() {
		specified, ok := d.(cable.Specified)
		if !ok {
			continue
		}
		c, err := specified.SettingsOf(s)
		if err != nil {
			return nil, err
		}
		if len(c) > 0 {
			settings[d.Name()] = c
		}
	}
	return settings, nil
}

// VXLANPorts returns the UDP ports of the VXLAN packets that gateways send each other.
func VXLANPorts(l cable.Local) (ports []int) {
	for _, d := range All() {
		if v, ok := d.(cable.OverVXLAN); ok {
			ports = append(ports, v.VXLANPort(l))
		}
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}

// Parse returns the driver with a name, which need not be canonical. If there is none, the
// error lists all drivers, and suggests a similar name.
func Parse(name string) (cable.Driver, error) { return cable.FindDriver(name, All()) }

// Find returns the driver with a name, which need not be canonical; nil if there is none.
func Find(name string) cable.Driver {
	d, _ := Parse(name)
	return d
}
