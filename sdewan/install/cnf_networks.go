package install

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"subctl/sdewan"
)

// ParseNetworks reads networks as the command line lists them: NAME or NAME=ADDRESS/BITS.
func ParseNetworks(texts []string) ([]Network, error) {
	var out []Network
	var errs []error
	for _, text := range texts {
		name, address, fixed := strings.Cut(text, "=")
		n := Network{Name: name}
		if fixed {
			var err error
			if n.Address, err = netip.ParsePrefix(address); err != nil || !n.Address.Addr().Is4() || n.Address.Addr() == n.Address.Masked().Addr() && n.Address.Bits() < 31 {
				errs = append(errs, fmt.Errorf("network %q: %q is not an IPv4 address with the length of its network: use NAME or NAME=ADDRESS/BITS, such as wan1=198.51.100.10/24", name, address))
			}
		}
		out = append(out, n)
	}
	return out, errors.Join(errs...)
}

// ParseUplinks reads uplinks as the command line lists them: NETWORK=GATEWAY, and the hosts that track them, NETWORK=ADDRESS, several of a
// network each as an item of their own.
func ParseUplinks(uplinks, tracks []string, timing sdewan.Uplink) (map[string]sdewan.Uplink, error) {
	out := map[string]sdewan.Uplink{}
	var errs []error
	for _, text := range uplinks {
		name, address, _ := strings.Cut(text, "=")
		gateway, err := netip.ParseAddr(address)
		if err != nil || !gateway.Is4() {
			errs = append(errs, fmt.Errorf("uplink %q: %q is not the IPv4 address of its router: use NETWORK=GATEWAY, such as wan1=198.51.100.1", name, address))
			continue
		}
		if _, twice := out[name]; twice {
			errs = append(errs, fmt.Errorf("uplink %q is listed twice", name))
		}
		u := timing
		u.Gateway = gateway
		out[name] = u
	}
	for _, text := range tracks {
		name, address, _ := strings.Cut(text, "=")
		ip, err := netip.ParseAddr(address)
		u, known := out[name]
		switch {
		case err != nil || !ip.Is4():
			errs = append(errs, fmt.Errorf("tracking %q: %q is not an IPv4 address: use NETWORK=ADDRESS, such as wan1=192.0.2.80", name, address))
		case !known:
			errs = append(errs, fmt.Errorf("tracking %q: it is not an uplink", name))
		default:
			u.TrackIPs = append(slices.Clone(u.TrackIPs), ip)
			out[name] = u
		}
	}
	if err := errors.Join(errs...); err != nil || len(out) == 0 {
		return nil, err
	}
	text, err := json.Marshal(out)
	if err != nil {
		return nil, err
	}
	if _, err := sdewan.ParseUplinks(text); err != nil { // the bounds of the numbers
		return nil, err
	}
	return out, nil
}
