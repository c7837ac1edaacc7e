package cable

import "strings"

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
