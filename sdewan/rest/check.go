package rest

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Refusal is the answer of a CNF to an object that it does not accept.
type Refusal struct {
	// Code is the HTTP status code: 400, or 428 if only something is missing to which the object
	// refers, which may appear later. For Services also 416 (ports).
	Code int
	// Problems are all mistakes of the object. None contains a secret.
	Problems []string
}

// Error implements error.
func (r *Refusal) Error() string { return strings.Join(r.Problems, "; ") }

// maxName bounds the length of names: it is that of objects of Kubernetes.
const maxName = 253

// Check returns a *Refusal if an object is invalid by itself, whatever else the CNF has. As on
// OpenWrt, spaces around values do not count, and "" and a missing value are the same. Unlike the
// present release of OpenWrt's packages, Check refuses objects without the values that the CNF
// needs.
func (l *Collection) Check(o Object) error {
	c := &checker{code: 400}
	o = Trimmed(o)
	c.name("name", o.GetName())
	c.text(o)
	c.size(o)
	c.limits(o)
	switch o := o.(type) {
	case *Policy:
		c.policy(o)
	case *Rule:
		c.rule(o)
	case *Zone:
		c.zone(o)
	case *Forwarding:
		c.required("src", o.Src)
		c.required("dest", o.Dest)
		c.oneOf("family", o.Family, families...)
	case *FirewallRule:
		c.firewallRule(l, o)
	case *Redirect:
		c.redirect(o)
	case *Proposal:
		c.proposal(o)
	case *Remote:
		c.remote(o)
	case *NAT:
		c.nat(o)
	case *Route:
		c.route(o)
	case *RouteRule:
		c.routeRule(o)
	case *Application:
		c.application(o)
	case *Service:
		c.service(o)
	}
	if len(c.problems) == 0 {
		return nil
	}
	return &Refusal{c.code, c.problems}
}

// MaxValues is the maximum number of values in an object. A value of one byte can take a hundred in
// the memory of a controller, which others use, too.
const MaxValues = 10000

func (c *checker) size(o Object) {
	b, _ := json.Marshal(o) // strings and lists of them can be encoded
	if n := CountValues(b); n > MaxValues {
		c.add("object", "%d values are too many: use at most %d", n, MaxValues)
	}
}

// CountValues returns about how many values JSON has.
func CountValues(raw []byte) (n int) {
	quoted := false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case c == '"':
			quoted = !quoted
		case quoted && c == '\\':
			i++
		case !quoted && (c == ',' || c == '[' || c == '{'):
			n++
		}
	}
	return n
}

// checker collects the problems of an object.
type checker struct {
	code     int
	problems []string
}

func (c *checker) add(field, format string, args ...any) {
	c.problems = append(c.problems, field+": "+fmt.Sprintf(format, args...))
}

// quote quotes a value that somebody else wrote, for a message.
func quote(value string) string { return fmt.Sprintf("%.60q", value) }

// name checks a name, which becomes a part of a path as it is: existing clients do not escape it.
func (c *checker) name(field, value string) {
	switch {
	case value == "":
		c.add(field, "required")
	case len(value) > maxName:
		c.add(field, "it has %d characters: use at most %d", len(value), maxName)
	case url.PathEscape(value) != value || value == "." || value == "..":
		c.add(field, "%s cannot be a part of a URL: use letters, digits, '-', '_' and '.'", quote(value))
	}
}

// text refuses control characters, except in certificates, where lines end.
func (c *checker) text(o Object) {
	walk(o, func(field, value string) string {
		if !slices.Contains(certificates, field) && strings.ContainsFunc(value, unicode.IsControl) {
			c.add(field, "it contains a control character: remove it")
		}
		return value
	})
}

func (c *checker) required(field, value string) {
	if value == "" {
		c.add(field, "required")
	}
}

func (c *checker) oneOf(field, value string, allowed ...string) {
	if value != "" && !slices.Contains(allowed, value) {
		c.add(field, "%s is not one of %s", quote(value), strings.Join(allowed, ", "))
	}
}

func (c *checker) number(field, value string, least, most int64) {
	if value == "" {
		return
	}
	if n, err := strconv.ParseInt(value, 10, 64); err != nil || n < least || n > most {
		c.add(field, "%s is not an integer from %d to %d", quote(value), least, most)
	}
}

func (c *checker) flag(field, value string) { c.oneOf(field, value, "0", "1") }

// network checks an IPv4 address with or without the length of a prefix.
func (c *checker) network(field, value string) {
	if value == "" {
		return
	}
	if p, err := ParseNetwork(value); err != nil || !p.Addr().Is4() {
		c.add(field, "%s is neither an IPv4 address nor a network such as 192.0.2.0/24", quote(value))
	}
}

func (c *checker) address(field, value string) {
	if value == "" {
		return
	}
	if a, err := netip.ParseAddr(value); err != nil || !a.Is4() {
		c.add(field, "%s is not an IPv4 address", quote(value))
	}
}

func (c *checker) mac(field, value string) {
	if value == "" {
		return
	}
	parts := strings.Split(value, ":")
	for _, p := range parts {
		if _, err := strconv.ParseUint(p, 16, 8); err != nil || len(p) != 2 || len(parts) != 6 {
			c.add(field, "%s is not a MAC address such as 02:00:00:00:00:01", quote(value))
			return
		}
	}
}

// ports checks what a rule matches: at most 15 ports and ranges of ports, as many as iptables
// matches at once.
func (c *checker) ports(field, value string) {
	if value == "" {
		return
	}
	if all, err := ParsePorts(value); err != nil || len(all) > 15 {
		c.add(field,
			"%s is not a port from 1 to 65535, a range such as 1000-2000, or a list of up to 15 of them separated by commas",
			quote(value))
	}
}

// port checks what ports are translated to.
func (c *checker) port(field, value string) {
	if value == "" {
		return
	}
	if all, err := ParsePorts(value); err != nil || len(all) != 1 {
		c.add(field, "%s is not a port from 1 to 65535, or a range such as 1000-2000", quote(value))
	}
}

func (c *checker) mark(field, value string, negated bool) {
	if value == "" {
		return
	}
	if negated {
		value = strings.TrimPrefix(value, "!")
	}
	if _, err := ParseMark(value); err != nil {
		c.add(field, "%s is not a mark such as 0x10 or 0x10/0xff", quote(value))
	}
}

// families are the values of "family".
var families = []string{"ipv4", "ipv6", "any", "all"}
