package cnf

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Values of REST objects are text that others wrote. Whatever gets into a plan is parsed here, and printed again.

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
	text = strings.TrimSpace(text)
	if ip, err := netip.ParseAddr(text); err == nil && ip.Is4() {
		return netip.PrefixFrom(ip, ip.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil || !p.Addr().Is4() {
		return netip.Prefix{}, fmt.Errorf("%q is neither an IPv4 address nor an IPv4 network", text)
	}
	return p.Masked(), nil
}

// parseMark parses VALUE or VALUE/MASK, in any notation of Go's numbers. The mask of a value without one is all bits.
func parseMark(text string) (mark, mask uint32, err error) {
	value, rest, has := strings.Cut(strings.TrimSpace(text), "/")
	n, err := strconv.ParseUint(value, 0, 32)
	m := uint64(0xffffffff)
	if err == nil && has {
		m, err = strconv.ParseUint(rest, 0, 32)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("%q is no mark such as 0x10 or 0x10/0xff", text)
	}
	return uint32(n), uint32(m), nil
}
