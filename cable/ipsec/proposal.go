package ipsec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"subctl/dataplane"
)

// protocol is the protocol of a proposal.
type protocol struct {
	name string
	prf  bool // whether its proposals have a pseudo-random function
}

var (
	ike = protocol{"ikeProposals", true}
	esp = protocol{"espProposals", false}
)

// cipher describes the overhead of a cipher in each packet, in bytes, and the alignment of
// the packet's length.
type cipher struct {
	aead           bool // also authenticates packets
	iv, icv, align int
}

// ciphers are the accepted ciphers, by strongSwan's names: RFC 4106 (GCM), RFC 7634
// (ChaCha20-Poly1305) and RFC 3602 (CBC). ESP packets are aligned to at least 4 bytes
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

// integrity maps HMACs to the length of their integrity check value, in bytes: half of the
// hash (RFC 4868, section 2.3).
var integrity = map[string]int{"sha256": 16, "sha384": 24, "sha512": 32}

// Part is a part of a proposal, in strongSwan's notation.
type Part struct {
	Name  string   // such as "cipher"
	Names []string // the accepted keywords
	weak  []string // refused keywords of strongSwan: RFC 8247 and RFC 8221 advise against them
}

var (
	cipherPart    = Part{"cipher", sorted(ciphers), []string{"des", "3des", "blowfish", "cast128", "null"}}
	integrityPart = Part{"integrity check", sorted(integrity), []string{"md5", "sha", "sha1", "aesxcbc"}}
	prfPart       = Part{
		"pseudo-random function",
		[]string{"prfsha256", "prfsha384", "prfsha512"},
		[]string{"prfmd5", "prfsha1"},
	}
	groupPart = Part{
		"Diffie-Hellman group",
		[]string{"x25519", "curve25519", "ecp256", "ecp384", "ecp521", "modp3072", "modp4096", "modp6144", "modp8192"},
		[]string{"modp768", "modp1024", "modp1024s160", "modp1536", "modp2048s224", "modp2048s256", "ecp192", "ecp224"},
	}
)

// Parts returns the parts of a proposal, in order.
func Parts() []Part { return []Part{cipherPart, integrityPart, prfPart, groupPart} }

// Checked returns the ciphers that authenticate packets themselves and take no integrity check.
func Checked() []string {
	return slices.DeleteFunc(sorted(ciphers), func(n string) bool { return !ciphers[n].aead })
}

// list formats the keywords for a message.
func (p Part) list() string { return strings.Join(p.Names, ", ") }

func (p Part) has(name string) bool { return slices.Contains(p.Names, name) }

// sorted returns the keys of m, sorted.
func sorted[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }

const maxProposals = 8

var proposalsForm = fmt.Sprintf("up to %d proposals, separated by commas", maxProposals)

// checkProposals returns an error if a list of proposals is invalid. Each proposal consists
// of a cipher; an integrity check, unless the cipher has its own; for IKE a pseudo-random
// function, unless the hash of the integrity check is used; and a Diffie-Hellman group.
// The group is required, since without it keys that leak later would decrypt recorded packets.
func checkProposals(text string, p protocol) error {
	all := strings.Split(tidy(text), ",")
	if len(all) > maxProposals {
		return fmt.Errorf("it has %d proposals: at most %d are accepted", len(all), maxProposals)
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
				return fmt.Errorf("%s is weak and not accepted: use another %s: %s", text, p.Name, p.list())
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
		return fmt.Errorf("it must begin with a cipher, not %.20q: use one of %s", next(), cipherPart.list())
	}
	parts = parts[1:]
	hashed := false
	if _, ok := integrity[next()]; ok {
		if c.aead {
			return fmt.Errorf("the cipher has its own integrity check: remove %s", next())
		}
		hashed = true
		parts = parts[1:]
	} else if !c.aead {
		return fmt.Errorf("it lacks an integrity check after the cipher: use one of %s", integrityPart.list())
	}
	if prfPart.has(next()) && p.prf {
		hashed = true
		parts = parts[1:]
	}
	if p.prf && !hashed {
		return fmt.Errorf("it lacks a pseudo-random function: use one of %s", prfPart.list())
	}
	if !groupPart.has(next()) {
		return fmt.Errorf("it lacks a Diffie-Hellman group: use one of %s", groupPart.list())
	}
	if len(parts) > 1 {
		return fmt.Errorf("unexpected %.20q after the Diffie-Hellman group", parts[1])
	}
	return nil
}

// tidy removes spaces.
func tidy(text string) string { return strings.Join(strings.Fields(text), "") }

// Sizes of headers, in bytes.
const (
	ipv4Header = 20
	udpHeader  = 8
	espHeader  = 8 // SPI and sequence number (RFC 4303, section 2)
	espTrailer = 2 // length of the padding, next header
)

// overhead returns the overhead of tunnel mode on a path with an MTU, in bytes, for the
// proposal with the largest overhead: outer header, UDP header if encapsulated, ESP header,
// initialization vector, padding, trailer and integrity check value.
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

// transportOverhead returns the overhead of VXLAN inside transport mode, in bytes. The outer
// IPv4 header counts once: transport mode uses the header of the VXLAN packet.
func transportOverhead(mtu int, proposals string, encapsulated bool) int {
	return overhead(mtu, proposals, encapsulated) + dataplane.VXLANOverhead - ipv4Header
}
