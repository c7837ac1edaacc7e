package cable

import (
	"fmt"
	"strings"

	"subctl/internal/words"
)

// Names of the drivers.
const (
	VXLAN          = "vxlan"
	WireGuard      = "wireguard"
	IPsec          = "ipsec"
	VXLANWireGuard = VXLAN + "+" + WireGuard
	VXLANIPsec     = VXLAN + "+" + IPsec
)

// Canonical returns a driver's name for what a user may write instead: libreswan
// (upstream's IPsec, so that existing configurations load), and combined cables in
// either order.
func Canonical(name string) string {
	parts := strings.Split(strings.ToLower(strings.TrimSpace(name)), "+")
	for i, p := range parts {
		if p = strings.TrimSpace(p); p == "libreswan" {
			p = IPsec
		}
		parts[i] = p
	}
	if len(parts) == 2 && parts[1] == VXLAN {
		parts[0], parts[1] = parts[1], parts[0]
	}
	return strings.Join(parts, "+")
}

// FindDriver returns the driver of a name, or of an alias of it, among the known ones. The
// error lists them, with the one that was most likely meant.
func FindDriver(name string, known []Driver) (Driver, error) {
	var names []string
	for _, d := range known {
		if d.Name() == Canonical(name) {
			return d, nil
		}
		names = append(names, d.Name())
	}
	if near := words.Nearest(Canonical(name), names); near != "" {
		return nil, fmt.Errorf("there is no cable driver %s: did you mean %s? There are %s", quoted(name), near, strings.Join(names, ", "))
	}
	return nil, fmt.Errorf("there is no cable driver %s: use one of %s", quoted(name), strings.Join(names, ", "))
}
