package rest

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// protocols are those of firewall rules; unset means tcp and udp.
var protocols = []string{"tcp", "udp", "tcpudp", "udplite", "icmp", "esp", "ah", "sctp", "all"}

func (c *checker) zone(o *Zone) {
	for _, n := range o.Network {
		c.required("network", n)
	}
	c.flag("masq", o.Masq)
	c.flag("masq_allow_invalid", o.MasqAllowInvalid)
	c.flag("mtu_fix", o.MTUFix)
	for _, n := range o.MasqSrc {
		c.network("masq_src", strings.TrimPrefix(n, "!"))
	}
	for _, n := range o.MasqDest {
		c.network("masq_dest", strings.TrimPrefix(n, "!"))
	}
	for _, n := range o.Subnet {
		c.network("subnet", n)
	}
	c.oneOf("input", o.Input, "ACCEPT", "REJECT", "DROP")
	c.oneOf("forward", o.Forward, "ACCEPT", "REJECT", "DROP")
	c.oneOf("output", o.Output, "ACCEPT", "REJECT", "DROP")
	c.oneOf("family", o.Family, families...)
}

// firewallRule checks a rule between zones, or, of networkfirewall, between interfaces, which needs
// its source.
func (c *checker) firewallRule(l *Collection, o *FirewallRule) {
	if l == NetworkRules {
		c.required("src", o.Src)
	}
	c.network("src_ip", o.SrcIP)
	c.mac("src_mac", o.SrcMAC)
	c.ports("src_port", o.SrcPort)
	c.oneOf("proto", o.Proto, protocols...)
	for _, t := range o.ICMPType {
		c.icmpType("icmp_type", t)
	}
	c.network("dest_ip", o.DestIP)
	c.ports("dest_port", o.DestPort)
	c.mark("mark", o.Mark, true)
	c.oneOf("target", o.Target, "ACCEPT", "REJECT", "DROP", "MARK", "NOTRACK")
	c.mark("set_mark", o.SetMark, false)
	c.mark("set_xmark", o.SetXMark, false)
	if o.Target == "MARK" && o.SetMark == "" && o.SetXMark == "" {
		c.add("target", "set_mark or set_xmark is required for MARK")
	}
	c.oneOf("family", o.Family, families...)
}

func (c *checker) redirect(o *Redirect) {
	c.network("src_ip", o.SrcIP)
	c.network("src_dip", o.SrcDIP)
	c.mac("src_mac", o.SrcMAC)
	c.ports("src_port", o.SrcPort)
	c.oneOf("proto", o.Proto, protocols...)
	c.network("dest_ip", o.DestIP)
	c.mark("mark", o.Mark, true)
	c.oneOf("target", o.Target, "DNAT", "SNAT")
	c.oneOf("family", o.Family, families...)
	if o.Target == "SNAT" {
		c.address("src_dip", o.SrcDIP)
		c.port("src_dport", o.SrcDPort)
		c.ports("dest_port", o.DestPort)
		if o.SrcDIP == "" {
			c.add("src_dip", "src_dip is required for SNAT")
		}
		if o.Dest == "" {
			c.add("dest", "dest is required for SNAT")
		}
		if o.SrcMAC != "" {
			c.add("src_mac", "it cannot be matched where sources are translated: remove it")
		}
		return
	}
	c.ports("src_dport", o.SrcDPort)
	c.port("dest_port", o.DestPort)
	c.address("dest_ip", o.DestIP)
	if o.Src == "" {
		c.add("src", "src is required for DNAT")
	}
}

func (c *checker) nat(o *NAT) {
	c.network("src_ip", o.SrcIP)
	c.ports("src_port", o.SrcPort)
	c.oneOf("proto", o.Proto, protocols...)
	c.network("dest_ip", o.DestIP)
	c.number("index", o.Index, 0, 1<<31)
	c.required("target", o.Target)
	c.oneOf("target", o.Target, "DNAT", "SNAT", "MASQUERADE")
	switch o.Target {
	case "SNAT":
		c.required("src_dip", o.SrcDIP)
		c.address("src_dip", o.SrcDIP)
		c.port("src_dport", o.SrcDPort)
		c.ports("dest_port", o.DestPort)
		c.required("dest", o.Dest)
	case "MASQUERADE":
		c.network("src_dip", o.SrcDIP)
		c.ports("src_dport", o.SrcDPort)
		c.ports("dest_port", o.DestPort)
		c.required("dest", o.Dest)
	case "DNAT":
		c.network("src_dip", o.SrcDIP)
		c.ports("src_dport", o.SrcDPort)
		c.address("dest_ip", o.DestIP)
		c.port("dest_port", o.DestPort)
		if o.DestIP == "" && o.DestPort == "" {
			c.add("dest_ip", "dest_ip or dest_port is required for DNAT")
		}
	}
}

// ICMPType is a type of ICMP messages and, unless Any, a code.
type ICMPType struct {
	Type, Code uint8
	Any        bool // whether all codes of the type match
}

// ICMPTypes are the names of types, as iptables has them. "any" matches all types.
var ICMPTypes = map[string]ICMPType{
	"echo-reply":                 {0, 0, true},
	"pong":                       {0, 0, true},
	"destination-unreachable":    {3, 0, true},
	"network-unreachable":        {3, 0, false},
	"host-unreachable":           {3, 1, false},
	"protocol-unreachable":       {3, 2, false},
	"port-unreachable":           {3, 3, false},
	"fragmentation-needed":       {3, 4, false},
	"source-route-failed":        {3, 5, false},
	"network-unknown":            {3, 6, false},
	"host-unknown":               {3, 7, false},
	"network-prohibited":         {3, 9, false},
	"host-prohibited":            {3, 10, false},
	"TOS-network-unreachable":    {3, 11, false},
	"TOS-host-unreachable":       {3, 12, false},
	"communication-prohibited":   {3, 13, false},
	"host-precedence-violation":  {3, 14, false},
	"precedence-cutoff":          {3, 15, false},
	"source-quench":              {4, 0, true},
	"redirect":                   {5, 0, true},
	"network-redirect":           {5, 0, false},
	"host-redirect":              {5, 1, false},
	"TOS-network-redirect":       {5, 2, false},
	"TOS-host-redirect":          {5, 3, false},
	"echo-request":               {8, 0, true},
	"ping":                       {8, 0, true},
	"router-advertisement":       {9, 0, true},
	"router-solicitation":        {10, 0, true},
	"time-exceeded":              {11, 0, true},
	"ttl-exceeded":               {11, 0, true},
	"ttl-zero-during-transit":    {11, 0, false},
	"ttl-zero-during-reassembly": {11, 1, false},
	"parameter-problem":          {12, 0, true},
	"ip-header-bad":              {12, 0, false},
	"required-option-missing":    {12, 1, false},
	"timestamp-request":          {13, 0, true},
	"timestamp-reply":            {14, 0, true},
	"address-mask-request":       {17, 0, true},
	"address-mask-reply":         {18, 0, true},
}

// ParseICMPType returns a type by its name, or by its number with or without a code: 8, 3/1. "any"
// is no type.
func ParseICMPType(s string) (t ICMPType, ok bool) {
	if t, ok := ICMPTypes[s]; ok {
		return t, true
	}
	number, code, one := strings.Cut(s, "/")
	if !one {
		code = "0"
	}
	n, err := strconv.ParseUint(number, 10, 8)
	k, err2 := strconv.ParseUint(code, 10, 8)
	return ICMPType{uint8(n), uint8(k), !one}, err == nil && err2 == nil
}

func (c *checker) icmpType(field, value string) {
	if _, ok := ParseICMPType(value); !ok && value != "any" {
		c.add(field, "%s is neither a number such as 8 or 3/1, nor one of any, %s", quote(value),
			strings.Join(slices.Sorted(maps.Keys(ICMPTypes)), ", "))
	}
}
