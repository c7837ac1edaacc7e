package install

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"subctl/sdewan"
)

// ParseNetworks reads networks as the flag --networks lists them: NAME or NAME=ADDRESS/BITS.
func ParseNetworks(texts []string) ([]Network, error) {
	var out []Network
	var errs []error
	for _, text := range texts {
		name, address, fixed := strings.Cut(text, "=")
		n := Network{Name: name}
		if name == "" {
			errs = append(errs,
				fmt.Errorf("--networks: the name of a network is empty in %q: use NAME or NAME=ADDRESS/BITS", text))
		}
		if fixed {
			var err error
			n.Address, err = netip.ParsePrefix(address)
			switch {
			case err != nil || !n.Address.Addr().Is4():
				errs = append(
					errs,
					fmt.Errorf(
						"--networks: network %q: %q is not an IPv4 address with the length of its network: use NAME or NAME=ADDRESS/BITS, such as wan1=198.51.100.10/24",
						name, address),
				)
			case !sdewan.UnicastNetwork(n.Address):
				errs = append(
					errs,
					fmt.Errorf(
						"--networks: network %q: %s has addresses that no host can have: use the address of the pod with the length of its network",
						name, n.Address.Masked()),
				)
			case !isHost(n.Address):
				errs = append(
					errs,
					fmt.Errorf("--networks: network %q: %s is no address of a host in %s: use the address of the pod",
						name, n.Address.Addr(), n.Address.Masked()),
				)
			}
		}
		out = append(out, n)
	}
	return out, errors.Join(errs...)
}

// isHost reports whether an address with the length of its network can be a host's: neither the
// network's own address nor its broadcast address.
func isHost(p netip.Prefix) bool {
	const pointToPoint = 31 // all addresses of which are hosts
	network := p.Masked()
	return p.Bits() >= pointToPoint || p.Addr() != network.Addr() && network.Contains(p.Addr().Next())
}

// ParseUplinks reads uplinks as the flag --uplinks lists them, NETWORK=GATEWAY, and the hosts that
// track them as --track does, NETWORK=ADDRESS, several of a network each as an item of their own.
func ParseUplinks(uplinks, tracks []string, timing sdewan.Uplink) (map[string]sdewan.Uplink, error) {
	out := map[string]sdewan.Uplink{}
	var errs []error
	for _, text := range uplinks {
		name, address, _ := strings.Cut(text, "=")
		gateway, err := netip.ParseAddr(address)
		if err != nil || !sdewan.Unicast(gateway) {
			errs = append(
				errs,
				fmt.Errorf(
					"--uplinks: uplink %q: %q is not the IPv4 address of its router: use NETWORK=GATEWAY, such as wan1=198.51.100.1",
					name, address),
			)
			continue
		}
		if _, twice := out[name]; twice {
			errs = append(errs, fmt.Errorf("--uplinks: uplink %q is listed twice", name))
		}
		u := timing
		u.Gateway = gateway
		out[name] = u
	}
	if len(out) > sdewan.MaxUplinkEntries {
		errs = append(errs,
			fmt.Errorf("--uplinks: %d uplinks are too many: use at most %d", len(out), sdewan.MaxUplinkEntries))
	}
	for _, text := range tracks {
		name, address, _ := strings.Cut(text, "=")
		ip, err := netip.ParseAddr(address)
		u, known := out[name]
		switch {
		case err != nil || !sdewan.Unicast(ip):
			errs = append(
				errs,
				fmt.Errorf(
					"--track: %q: %q is not the IPv4 address of a host: use NETWORK=ADDRESS, such as wan1=192.0.2.80",
					name, address),
			)
		case !known:
			errs = append(errs, fmt.Errorf("--track: %q is not an uplink: add it to --uplinks, with its router", name))
		case slices.Contains(u.TrackIPs, ip):
			errs = append(errs, fmt.Errorf("--track: %s is listed twice", text))
		case len(u.TrackIPs) == sdewan.MaxTrackIPs:
			errs = append(errs,
				fmt.Errorf("--track: %s is one host too many: use at most %d for an uplink", text, sdewan.MaxTrackIPs))
		default:
			u.TrackIPs = append(slices.Clone(u.TrackIPs), ip)
			out[name] = u
		}
	}
	if err := errors.Join(errs...); err != nil || len(out) == 0 {
		return nil, err
	}
	return out, nil
}

// checkAddresses returns what is wrong with the addresses of networks, of their routers, and of the
// hosts that track uplinks.
func (c CNF) checkAddresses() (errs []error) {
	for i, n := range c.Networks {
		if !n.Address.IsValid() {
			continue
		}
		for _, other := range c.Networks[:i] {
			if other.Address.IsValid() && other.Address.Overlaps(n.Address) {
				errs = append(
					errs,
					fmt.Errorf("networks %q (%s) and %q (%s) overlap: a CNF cannot route between them", other.Name,
						other.Address, n.Name, n.Address),
				)
			}
		}
		switch gateway := c.Uplinks[n.Name].Gateway; {
		case !gateway.IsValid():
		case gateway == n.Address.Addr():
			errs = append(errs,
				fmt.Errorf("uplink %q: %s is the address of the CNF itself: use that of the router", n.Name, gateway))
		case !n.Address.Contains(gateway):
			errs = append(errs,
				fmt.Errorf("uplink %q: the router %s is not in the network %s", n.Name, gateway, n.Address.Masked()))
		case !isHost(netip.PrefixFrom(gateway, n.Address.Bits())):
			errs = append(
				errs,
				fmt.Errorf("uplink %q: %s is no address of a host in %s: use the address of the router", n.Name,
					gateway, n.Address.Masked()),
			)
		}
		for _, name := range slices.Sorted(maps.Keys(c.Uplinks)) {
			if slices.Contains(c.Uplinks[name].TrackIPs, n.Address.Addr()) {
				errs = append(
					errs,
					fmt.Errorf(
						"--track: %s=%s is the address of the CNF itself, which always answers: use another host", name,
						n.Address.Addr()),
				)
			}
		}
	}
	return errs
}
