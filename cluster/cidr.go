package cluster

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"subctl/cable"
)

// network is an address range and whose it is, as a sentence goes on: "the pod
// network of cluster "west"".
type network struct {
	prefix netip.Prefix
	of     string
}

// parseCIDRs reads a list of IPv4 networks; what names the list in errors, such
// as "--clustercidr". Every mistake is in the error. Agents read them the same way.
func parseCIDRs(what string, list []string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	var errs []error
	for _, s := range list {
		p, err := cable.ParseCIDR(strings.TrimSpace(s))
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
			continue
		}
		out = append(out, p)
	}
	return out, errors.Join(errs...)
}

// joinPrefixes writes networks as Submariner.spec does: separated by commas.
func joinPrefixes(list []netip.Prefix) string {
	var out []string
	for _, p := range list {
		out = append(out, p.String())
	}
	return strings.Join(out, ",")
}

// impossible says which of list no agent takes for a cluster's network.
func impossible(list []network, remedy string) error {
	var errs []error
	for _, n := range list {
		if _, err := cable.ParseCIDR(n.prefix.String()); err != nil {
			errs = append(errs, fmt.Errorf("%s cannot be connected: %w: %s", n.of, err, remedy))
		}
	}
	return errors.Join(errs...)
}

// overlaps says which of mine have addresses in common with others.
func overlaps(mine, others []network, remedy string) error {
	var errs []error
	for _, m := range mine {
		for _, o := range others {
			if m.prefix.Overlaps(o.prefix) {
				errs = append(errs, fmt.Errorf("%s, %s, overlaps %s, %s: %s", m.prefix, m.of, o.prefix, o.of, remedy))
			}
		}
	}
	return errors.Join(errs...)
}

// inside says which addresses lie within networks.
func inside(addrs map[string]netip.Addr, nets []network, remedy string) error {
	var errs []error
	var names []string
	for name := range addrs {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		for _, n := range nets {
			if n.prefix.Contains(addrs[name]) {
				errs = append(errs, fmt.Errorf("%s, the address of %s, lies in %s, %s: %s", addrs[name], name, n.prefix, n.of, remedy))
			}
		}
	}
	return errors.Join(errs...)
}

// covering returns the smallest network that holds all of list, which must not
// be empty.
func covering(list []netip.Prefix) netip.Prefix {
	out := list[0]
	for _, p := range list[1:] {
		for out.Bits() > 0 && (out.Bits() > p.Bits() || !out.Contains(p.Addr())) {
			out = netip.PrefixFrom(out.Addr(), out.Bits()-1).Masked()
		}
	}
	return out
}

// ipv4 splits networks by family.
func ipv4(list []netip.Prefix) (four, six []netip.Prefix) {
	for _, p := range list {
		if p.Addr().Is4() {
			four = append(four, p.Masked())
		} else {
			six = append(six, p.Masked())
		}
	}
	return four, six
}
