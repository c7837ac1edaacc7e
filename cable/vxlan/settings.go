package vxlan

import (
	"strconv"

	"subctl/cable"
	"subctl/dataplane"
)

// Keys of backend_config.
const (
	portKey = "vxlan-port"
	vniKey  = "vxlan-id"
)

// The settings.
var (
	optVNI = cable.Option{
		Key:     "vxlanID",
		Kind:    cable.OptionNumber,
		Default: strconv.Itoa(dataplane.CableVNI),
		Min:     1,
		Max:     1<<24 - 1,
		PerPair: true,
		Doc:     "VXLAN network identifier (RFC 7348, section 5); must be the same at both ends",
	}
	optPort = cable.Option{
		Key: "vxlanPort", Kind: cable.OptionNumber, Default: strconv.Itoa(dataplane.VXLANPort), Min: 1, Max: 65535,
		Doc: "UDP port of plain VXLAN; must be the same at both ends",
	}
)

// VXLANPort implements cable.OverVXLAN.
func (Driver) VXLANPort(l cable.Local) int { return l.Settings[Name].Number(optPort) }

// Announced implements cable.Announcer. It omits invalid values.
func (Driver) Announced(g cable.Gateway) cable.Config {
	c := cable.Config{}
	for key, o := range map[string]cable.Option{portKey: optPort, vniKey: optVNI} {
		if n, err := strconv.Atoi(g.Config[key]); err == nil && n >= o.Min && n <= o.Max {
			c[o.Key] = strconv.Itoa(n)
		}
	}
	return c
}
