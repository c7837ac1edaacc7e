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

// Canonical returns the canonical name of a driver. It accepts "libreswan" for ipsec (so
// that upstream's configurations load), any case, and combined cables in either order. It does
// not check that the driver exists.
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

// FindDriver returns the known driver with a name, which need not be canonical. If there is
// none, the error lists the known drivers, and suggests a similar name.
func FindDriver(name string, known []Driver) (Driver, error) {
	var names []string
	for _, d := range known {
		if d.Name() == Canonical(name) {
			return d, nil
		}
		names = append(names, d.Name())
	}
	if near := words.Nearest(Canonical(name), names); near != "" {
		return nil, fmt.Errorf("unknown cable driver %s: did you mean %s? The drivers are %s", quoted(name), near,
			strings.Join(names, ", "))
	}
	return nil, fmt.Errorf("unknown cable driver %s: use one of %s", quoted(name), strings.Join(names, ", "))
}
