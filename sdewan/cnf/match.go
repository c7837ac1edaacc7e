package cnf

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"subctl/sdewan/rest"
)

// This file turns fields of REST objects into conditions in the notation of nft(8).

// list returns {a, b} as nft(8) has it, or the only element.
func list[T any](elements []T) string {
	if len(elements) == 1 {
		return fmt.Sprint(elements[0])
	}
	words := make([]string, len(elements))
	for i, e := range elements {
		words[i] = fmt.Sprint(e)
	}
	return "{ " + strings.Join(words, ", ") + " }"
}

// devices returns the condition that a packet arrives on ("iifname"), or leaves through
// ("oifname"), one of some devices.
func devices(direction string, names []string) string {
	if len(names) == 0 {
		return ""
	}
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = strconv.Quote(n)
	}
	return direction + " " + list(quoted)
}

// nets returns the condition that an address ("saddr" or "daddr") is in one of some networks.
func nets(direction string, nets []netip.Prefix) string {
	if len(nets) == 0 {
		return ""
	}
	return fmt.Sprintf("ip %s %s", direction, list(compact(nets)))
}

// compact returns the networks, sorted, without those that are part of others: nft(8) refuses sets
// with such.
func compact(all []netip.Prefix) (out []netip.Prefix) {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b netip.Prefix) int {
		if c := a.Masked().Addr().Compare(b.Masked().Addr()); c != 0 {
			return c
		}
		return a.Bits() - b.Bits()
	})
	for _, n := range all {
		if len(out) == 0 || !out[len(out)-1].Contains(n.Addr()) {
			out = append(out, n.Masked())
		}
	}
	return out
}

// conditions collects the conditions of a rule, and the mistakes in its fields.
type conditions struct {
	words []string
	errs  []error
}

func (c *conditions) add(word string) {
	if word != "" {
		c.words = append(c.words, word)
	}
}

func (c *conditions) fail(field string, err error) {
	if err != nil {
		c.errs = append(c.errs, fmt.Errorf("%s: %w", field, err))
	}
}

// text returns the conditions, and all mistakes.
func (c *conditions) text() (string, error) {
	return strings.Join(c.words, " "), errors.Join(c.errs...)
}

// family adds a restriction to IPv4 or IPv6.
func (c *conditions) family(text string) {
	switch text {
	case "", "any", "all":
	case "ipv4", "ipv6":
		c.add("meta nfproto " + text)
	default:
		c.fail("family", fmt.Errorf("%q is neither ipv4, ipv6 nor any", text))
	}
}

// address adds a restriction to a network, or, after '!', to all but a network.
func (c *conditions) address(field, direction, text string) {
	if text == "" {
		return
	}
	not, text := negated(text)
	n, err := parseNet(text)
	if err != nil {
		c.fail(field, err)
		return
	}
	c.add(fmt.Sprintf("ip %s %s%s", direction, not, netText(n)))
}

// negated returns "!= " and the rest of a text that begins with '!', and otherwise the text.
func negated(text string) (not, rest string) {
	if rest, is := strings.CutPrefix(strings.TrimSpace(text), "!"); is {
		return "!= ", strings.TrimSpace(rest)
	}
	return "", text
}

// netText returns a network, or an address without the length of its prefix.
func netText(n netip.Prefix) string {
	if n.IsSingleIP() {
		return n.Addr().String()
	}
	return n.String()
}

// mac adds a restriction to a sender.
func (c *conditions) mac(field, text string) {
	if text == "" {
		return
	}
	not, text := negated(text)
	const ethernet = 6 // bytes
	mac, err := net.ParseMAC(text)
	if err != nil || len(mac) != ethernet {
		c.fail(field, fmt.Errorf("%q is no MAC address", text))
		return
	}
	c.add("ether saddr " + not + mac.String())
}

// mark adds a restriction to packets with a mark.
func (c *conditions) mark(field, text string) {
	if text == "" {
		return
	}
	not, rest := negated(text)
	value, mask, err := parseMark(rest)
	if err != nil {
		c.fail(field, err)
		return
	}
	if not == "" {
		not = "== "
	}
	c.add(fmt.Sprintf("meta mark & %#08x %s%#08x", mask, not, value))
}

// The protocols by the words that REST objects have for them.
var protocols = map[string][]string{
	"tcp": {"tcp"}, "udp": {"udp"}, "tcpudp": {"tcp", "udp"}, "udplite": {"udplite"}, "icmp": {"icmp"},
	"esp": {"esp"}, "ah": {"ah"}, "sctp": {"sctp"}, "all": nil,
}

// ported are the protocols that have ports.
var ported = []string{"tcp", "udp", "udplite", "sctp"}

// protocol returns the protocols of a word; none for all. unset is the word that stands for "".
func protocol(text, unset string) ([]string, error) {
	if text == "" {
		text = unset
	}
	names, known := protocols[text]
	if !known {
		return nil, fmt.Errorf("proto: %q is none of tcp, udp, tcpudp, udplite, icmp, esp, ah, sctp and all", text)
	}
	return names, nil
}

// protocolsAndPorts adds restrictions to protocols, none of which is all, and to ports.
func (c *conditions) protocolsAndPorts(names []string, sport, dport string) {
	if len(names) > 0 {
		c.add("meta l4proto " + list(names))
	}
	for _, p := range []struct{ field, text string }{{"sport", sport}, {"dport", dport}} {
		if p.text == "" {
			continue
		}
		ports, err := parsePorts(p.text)
		if err == nil &&
			(len(names) == 0 ||
				slices.ContainsFunc(names, func(n string) bool { return !slices.Contains(ported, n) })) {
			err = errors.New(
				"only tcp, udp, udplite and sctp have ports: set proto to one of these, or leave out the port")
		}
		if err != nil {
			c.fail(map[string]string{"sport": "source port", "dport": "destination port"}[p.field], err)
			continue
		}
		c.add("th " + p.field + " " + list(ports))
	}
}

// icmp returns the condition that a packet is of a type of ICMP: a name of iptables, a number, or a
// number and a code.
func icmp(name string) (string, error) {
	name = strings.TrimSpace(name)
	t, ok := rest.ParseICMPType(name)
	switch {
	case name == "any":
		return "meta l4proto icmp", nil
	case !ok:
		return "", fmt.Errorf("icmp_type: %q is no type of ICMP: use a name such as echo-request, or a number", name)
	case t.Any:
		return fmt.Sprintf("icmp type %d", t.Type), nil
	}
	return fmt.Sprintf("icmp type %d icmp code %d", t.Type, t.Code), nil
}
