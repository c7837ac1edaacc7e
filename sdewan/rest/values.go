package rest

import (
	"fmt"
	"net/netip"
	"reflect"
	"strconv"
	"strings"

	"subctl/internal/prefix"
)

// Ports is a range of ports, from 1 to 65535.
type Ports struct{ First, Last uint16 }

// ParsePorts parses a port, a range (1000-2000 or 1000:2000), or a list of them separated by
// commas. The result has at least one element.
func ParsePorts(s string) ([]Ports, error) {
	var all []Ports
	for _, part := range strings.Split(s, ",") {
		part = strings.TrimSpace(part)
		first, last, isRange := strings.Cut(strings.Replace(part, ":", "-", 1), "-")
		if !isRange {
			last = first
		}
		a, err := strconv.ParseUint(first, 10, 16)
		b, err2 := strconv.ParseUint(last, 10, 16)
		if err != nil || err2 != nil || a == 0 || b < a {
			return nil, fmt.Errorf("%.20q is neither a port from 1 to 65535 nor a range such as 1000-2000", part)
		}
		all = append(all, Ports{uint16(a), uint16(b)})
	}
	return all, nil
}

// ParseNetwork parses an address, or an address with the length of a prefix, which need not be that
// of a network: the bits of hosts are cleared. IPv4-mapped addresses and zones are refused.
func ParseNetwork(s string) (netip.Prefix, error) {
	p, err := prefix.Parse(s)
	if err != nil || p.Addr().Is4In6() || p.Addr().Zone() != "" {
		return netip.Prefix{}, fmt.Errorf("%.60q is neither an address nor a network", s)
	}
	return p.Masked(), nil
}

// LastAddr returns the last address of a network.
func LastAddr(n netip.Prefix) netip.Addr {
	b := n.Addr().AsSlice()
	for i := n.Bits(); i < n.Addr().BitLen(); i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// Mark is a mark of packets, and which of its bits count.
type Mark struct{ Value, Mask uint32 }

// ParseMark parses VALUE or VALUE/MASK, decimal or hexadecimal (0x). Without a mask all bits count.
func ParseMark(s string) (Mark, error) {
	value, mask, masked := strings.Cut(s, "/")
	if !masked {
		mask = "0xffffffff"
	}
	v, err := strconv.ParseUint(value, 0, 32)
	m, err2 := strconv.ParseUint(mask, 0, 32)
	if err != nil || err2 != nil {
		return Mark{}, fmt.Errorf("%.40q is no mark such as 0x10 or 0x10/0xff", s)
	}
	return Mark{uint32(v), uint32(m)}, nil
}

// Trimmed returns a copy without the spaces around values, which do not count on OpenWrt either.
func Trimmed(o Object) Object {
	n := reflect.New(reflect.TypeOf(o).Elem())
	n.Elem().Set(reflect.ValueOf(o).Elem())
	trimmed := n.Interface().(Object)
	walk(trimmed, func(_, value string) string { return strings.TrimSpace(value) })
	return trimmed
}

// Trimmed returns a copy whose objects are Trimmed.
func (c *Config) Trimmed() Config {
	var n Config
	for _, l := range Collections {
		for _, o := range l.items.all(c) {
			l.items.add(&n, Trimmed(o))
		}
	}
	n.Stopped = append(n.Stopped, c.Stopped...)
	n.Awaiting = c.Awaiting
	return n
}

// walk replaces all strings in an object by the results of f, which gets the name of the field in
// the API, with that of the list around it: members.interface. Lists are copied, so that other
// copies of the object stay as they are.
func walk(o Object, f func(field, value string) string) { walkValue(reflect.ValueOf(o).Elem(), "", f) }

func walkValue(v reflect.Value, field string, f func(field, value string) string) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(f(field, v.String()))
	case reflect.Slice:
		if v.IsNil() {
			return
		}
		n := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		reflect.Copy(n, v)
		v.Set(n)
		for i := range v.Len() {
			walkValue(v.Index(i), field, f)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			walkValue(v.Field(i), fieldName(v.Type().Field(i), field), f)
		}
	}
}

// fieldName returns the name of a field in the API, with that of the list around it.
func fieldName(f reflect.StructField, around string) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if around != "" {
		return around + "." + name
	}
	return name
}
