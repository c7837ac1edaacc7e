package ipsec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"subctl/dataplane"
)

// protocol is what a proposal is for.
type protocol struct {
	name string
	prf  bool // whether it has a pseudo-random function
}

var (
	ike = protocol{"ikeProposals", true}
	esp = protocol{"espProposals", false}
)

// cipher is what a cipher adds to each packet, in bytes, and what it makes the packet's
// length a multiple of.
type cipher struct {
	aead           bool // checks integrity, too
	iv, icv, align int
}

// ciphers are those that may be used, by strongSwan's names: RFC 4106 (GCM), RFC 7634
// (ChaCha20-Poly1305) and RFC 3602 (CBC). ESP packets end on a multiple of 4 at least
// (RFC 4303, section 2.4).
var ciphers = map[string]cipher{
	"aes128gcm16":      {true, 8, 16, 4},
	"aes192gcm16":      {true, 8, 16, 4},
	"aes256gcm16":      {true, 8, 16, 4},
	"chacha20poly1305": {true, 8, 16, 4},
	"aes128":           {false, 16, 0, 16},
	"aes192":           {false, 16, 0, 16},
	"aes256":           {false, 16, 0, 16},
}

// integrity is the length of the check value of each HMAC, in bytes: half of the hash
// (RFC 4868, section 2.3).
var integrity = map[string]int{"sha256": 16, "sha384": 24, "sha512": 32}

// Part is one of the parts that a proposal consists of, in strongSwan's notation.
type Part struct {
	Name  string   // what a user would call it
	Names []string // what it can be
	weak  []string // what strongSwan knows too, and is refused: RFC 8247 and RFC 8221 advise against it
}

var (
	cipherPart    = Part{"cipher", sorted(ciphers), []string{"des", "3des", "blowfish", "cast128", "null"}}
	integrityPart = Part{"integrity check", sorted(integrity), []string{"md5", "sha", "sha1", "aesxcbc"}}
	prfPart       = Part{"pseudo-random function", []string{"prfsha256", "prfsha384", "prfsha512"}, []string{"prfmd5", "prfsha1"}}
	groupPart     = Part{
		"Diffie-Hellman group",
		[]string{"x25519", "curve25519", "ecp256", "ecp384", "ecp521", "modp3072", "modp4096", "modp6144", "modp8192"},
		[]string{"modp768", "modp1024", "modp1024s160", "modp1536", "modp2048s224", "modp2048s256", "ecp192", "ecp224"},
	}
)

// Parts are the parts of a proposal, in their order.
func Parts() []Part { return []Part{cipherPart, integrityPart, prfPart, groupPart} }

// Checked lists the ciphers that have an integrity check of their own, and take no other.
func Checked() []string {
	return slices.DeleteFunc(sorted(ciphers), func(n string) bool { return !ciphers[n].aead })
}

// list enumerates the names in a message.
func (p Part) list() string { return strings.Join(p.Names, ", ") }

func (p Part) has(name string) bool { return slices.Contains(p.Names, name) }

// sorted are the keys of m, in order.
func sorted[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }

const maxProposals = 8

var proposalsForm = fmt.Sprintf("up to %d proposals, separated by commas", maxProposals)

// checkProposals says what is wrong with a list of proposals. Each is a cipher; the hash
// of its integrity check, unless the cipher has one of its own; for IKE the
// pseudo-random function, unless that hash serves; and a Diffie-Hellman group, without
// which keys that leak later would open packets that were recorded before.
func checkProposals(text string, p protocol) error {
	all := strings.Split(tidy(text), ",")
	if len(all) > maxProposals {
		return fmt.Errorf("has %d proposals: at most %d are accepted", len(all), maxProposals)
	}
	for _, one := range all {
		if err := checkProposal(one, p); err != nil {
			return fmt.Errorf("proposal %.60q: %w", one, err)
		}
	}
	return nil
}

func checkProposal(text string, p protocol) error {
	parts := strings.Split(text, "-")
	for _, text := range parts {
		for _, p := range Parts() {
			if slices.Contains(p.weak, text) {
				return fmt.Errorf("%s is weak, and not accepted: choose another %s: %s", text, p.Name, p.list())
			}
		}
	}
	next := func() string {
		if len(parts) == 0 {
			return ""
		}
		return parts[0]
	}
	c, ok := ciphers[next()]
	if !ok {
		return fmt.Errorf("begins with %.20q, not with a cipher: %s", next(), cipherPart.list())
	}
	parts = parts[1:]
	hashed := false
	if _, ok := integrity[next()]; ok {
		if c.aead {
			return fmt.Errorf("has an integrity check, %s, besides the cipher's own", next())
		}
		hashed, parts = true, parts[1:]
	} else if !c.aead {
		return fmt.Errorf("lacks an integrity check after the cipher: %s", integrityPart.list())
	}
	if prfPart.has(next()) && p.prf {
		hashed, parts = true, parts[1:]
	}
	if p.prf && !hashed {
		return fmt.Errorf("lacks a pseudo-random function: %s", prfPart.list())
	}
	if !groupPart.has(next()) {
		return fmt.Errorf("lacks a Diffie-Hellman group: %s", groupPart.list())
	}
	if len(parts) > 1 {
		return fmt.Errorf("has something after the Diffie-Hellman group: %.20q", parts[1])
	}
	return nil
}

// tidy removes spaces.
func tidy(text string) string { return strings.Join(strings.Fields(text), "") }

// The sizes of headers, in bytes.
const (
	ipv4Header = 20
	udpHeader  = 8
	espHeader  = 8 // SPI and sequence number (RFC 4303, section 2)
	espTrailer = 2 // length of the padding, next header
)

// overhead is what tunnel mode takes of a path's MTU under the costliest of the proposals:
// outer header, UDP header if there is one, ESP header, initialization vector, padding,
// trailer and check value.
func overhead(mtu int, proposals string, encapsulated bool) int {
	most := 0
	for _, one := range strings.Split(tidy(proposals), ",") {
		parts := append(strings.Split(one, "-"), "")
		c := ciphers[parts[0]]
		fixed := ipv4Header + espHeader + c.iv + c.icv + integrity[parts[1]]
		if encapsulated {
			fixed += udpHeader
		}
		room := mtu - fixed
		room -= room % max(c.align, 1)
		most = max(most, mtu-(room-espTrailer))
	}
	return most
}

// transportOverhead is what VXLAN inside transport mode takes: the outer header is that
// of VXLAN, which is not there twice.
func transportOverhead(mtu int, proposals string, encapsulated bool) int {
	return overhead(mtu, proposals, encapsulated) + dataplane.VXLANOverhead - ipv4Header
}
