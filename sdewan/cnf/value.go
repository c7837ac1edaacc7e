package cnf

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"subctl/sdewan/rest"
)

// Values of REST objects are text that others wrote. Whatever gets into a plan is parsed, by the
// functions by which package rest checks objects, and printed again.

// parseIP parses an IPv4 address.
func parseIP(text string) (netip.Addr, error) {
	ip, err := netip.ParseAddr(strings.TrimSpace(text))
	if err != nil || !ip.Is4() {
		return netip.Addr{}, fmt.Errorf("%q is no IPv4 address", text)
	}
	return ip, nil
}

// parseNet parses an IPv4 network or address. Bits beyond the prefix do not count.
func parseNet(text string) (netip.Prefix, error) {
	n, err := rest.ParseNetwork(strings.TrimSpace(text))
	if err != nil || !n.Addr().Is4() {
		return netip.Prefix{}, fmt.Errorf("%q is neither an IPv4 address nor an IPv4 network", text)
	}
	return n, nil
}

// parseMark parses VALUE or VALUE/MASK. The mask of a value without one is all bits.
func parseMark(text string) (mark, mask uint32, err error) {
	m, err := rest.ParseMark(strings.TrimSpace(text))
	return m.Value, m.Mask, err
}

// parsePort parses one port.
func parsePort(text string) (uint16, error) {
	n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 16)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%q is no port from 1 to 65535", text)
	}
	return uint16(n), nil
}

// ports is a range of ports, as nft(8) has it.
type ports rest.Ports

func (p ports) String() string { return span{int(p.First), int(p.Last)}.String() }

// parsePorts parses ports and ranges, separated by commas. It returns them sorted, without
// overlaps.
func parsePorts(text string) ([]ports, error) {
	all, err := rest.ParsePorts(text)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b rest.Ports) int { return int(a.First) - int(b.First) })
	merged := []ports{ports(all[0])}
	for _, p := range all[1:] {
		if end := &merged[len(merged)-1]; int(p.First) <= int(end.Last)+1 {
			end.Last = max(end.Last, p.Last)
		} else {
			merged = append(merged, ports(p))
		}
	}
	return merged, nil
}
