package rest

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"
)

// Keywords of strongSwan that a proposal may have. Which of them a CNF implements depends on its
// strongSwan.
var (
	encryption = regexp.MustCompile(
		`^(null|des|3des|cast128|chacha20poly1305|(aes|camellia)|(aes|camellia|blowfish|serpent|twofish)(128|192|256)|(aes|camellia)(128|192|256)ctr|(aes|camellia)(128|192|256)ccm(8|12|16|64|96|128)|aes(128|192|256)(gcm(8|12|16|64|96|128)|gmac))$`)
	hash = regexp.MustCompile(
		`^(md5|md5_128|sha|sha1|sha1_160|sha256|sha2_256|sha256_96|sha2_256_96|sha384|sha2_384|sha512|sha2_512|aesxcbc|aescmac|aes(128|192|256)gmac|camelliaxcbc)$`)
	group = regexp.MustCompile(
		`^(modpnone|modpnull|modp(768|1024|1536|2048|3072|4096|6144|8192|1024s160|2048s224|2048s256)|ecp(192|224|256|384|521)|ecp(224|256|384|512)bp|curve25519|x25519|curve448|x448)$`)
)

func (c *checker) proposal(o *Proposal) {
	c.keyword("encryption_algorithm", o.Encryption, encryption, "aes256, aes256gcm16 or chacha20poly1305")
	c.keyword("hash_algorithm", o.Hash, hash, "sha256, sha384 or sha512")
	c.keyword("dh_group", o.DHGroup, group, "modp3072, ecp256 or x25519")
	if o.Encryption == "" {
		c.add("encryption_algorithm", "required")
	}
}

func (c *checker) keyword(field, value string, known *regexp.Regexp, examples string) {
	if value != "" && !known.MatchString(value) {
		c.add(field, "%s is not an algorithm of strongSwan: use %s, for example", quote(value), examples)
	}
}

// hostname is a DNS name, or anything with its characters.
var hostname = regexp.MustCompile(`^[0-9A-Za-z]([0-9A-Za-z._-]{0,251}[0-9A-Za-z.])?$`)

// isHost reports whether a text is an IPv4 address, or can be a DNS name. No DNS name ends with a
// number (RFC 3696, section 2): 192.0.2.300 is a mistake.
func isHost(s string) bool {
	if !hostname.MatchString(s) {
		return false
	}
	name := strings.TrimSuffix(s, ".")
	last := name[strings.LastIndexByte(name, '.')+1:]
	_, err := netip.ParseAddr(s)
	return err == nil || strings.Trim(last, "0123456789") != ""
}

func (c *checker) remote(o *Remote) {
	c.required("gateway", o.Gateway)
	if _, err := netip.ParseAddr(o.Gateway); err != nil && o.Gateway != "" && o.Gateway != "%any" &&
		!isHost(o.Gateway) {
		c.add("gateway", "%s is neither an address, nor a DNS name, nor any", quote(o.Gateway))
	}
	c.flag("force_crypto_proposal", o.ForceProposal)
	switch o.Auth {
	case "psk":
		if o.PreSharedKey == "" {
			c.add("pre_shared_key", "required for the authentication method psk")
		}
	case "pubkey":
		c.certificates(o)
	default:
		c.add("authentication_method", "%s is not one of psk, pubkey", quote(o.Auth))
	}
	if len(o.Connections) == 0 {
		c.add("connections", "required: describe at least one")
	}
	used := map[string]bool{}
	for i := range o.Connections {
		conn := &o.Connections[i]
		c.connection(fmt.Sprintf("connections[%d].", i), conn)
		if used[conn.Name] && conn.Name != "" {
			c.add(fmt.Sprintf("connections[%d].name", i), "another connection is named %s", quote(conn.Name))
		}
		used[conn.Name] = true
	}
}

func (c *checker) connection(at string, o *Connection) {
	c.name(at+"name", o.Name)
	c.required(at+"conn_type", o.Type)
	c.oneOf(at+"conn_type", o.Type, "tunnel", "transport")
	c.required(at+"mode", o.Mode)
	c.oneOf(at+"mode", o.Mode, "start", "add", "route")
	c.selectors(at+"local_subnet", o.LocalSubnet)
	c.selectors(at+"local_nat", o.LocalNAT)
	c.selectors(at+"remote_subnet", o.RemoteSubnet)
	c.sources(at+"local_sourceip", o.LocalSourceIP)
	c.sources(at+"remote_sourceip", o.RemoteSourceIP)
	c.oneOf(at+"local_firewall", o.LocalFirewall, "yes", "no")
	c.oneOf(at+"remote_firewall", o.RemoteFirewall, "yes", "no")
	if o.Mark != "%unique" {
		c.mark(at+"mark", o.Mark, false)
	}
	if o.IfID != "%unique" {
		c.mark(at+"if_id", o.IfID, false)
	}
}

// selectors checks networks separated by commas, which may have spaces around them.
func (c *checker) selectors(field, value string) {
	for _, s := range list(value) {
		if _, err := ParseNetwork(s); err != nil {
			c.add(field, "%s is neither an address nor a network such as 192.0.2.0/24", quote(s))
		}
	}
}

// sources checks virtual addresses: %config (one is requested), addresses, networks, and ranges.
func (c *checker) sources(field, value string) {
	for _, s := range list(value) {
		if s == "%config" || s == "%config4" || s == "%config6" {
			continue
		}
		if _, err := ParsePool(s); err != nil {
			c.add(field, "%s is neither %%config, nor an address, a network, or a range such as 192.0.2.30-192.0.2.45",
				quote(s))
		}
	}
}

// Pool is a range of addresses that are handed out.
type Pool struct{ First, Last netip.Addr }

// ParsePool parses an address, a network, or a range of addresses of one family. Of a network, the
// addresses of the network and of broadcasts do not belong to the pool.
func ParsePool(s string) (Pool, error) {
	first, last, isRange := strings.Cut(s, "-")
	if isRange {
		a, err := netip.ParseAddr(strings.TrimSpace(first))
		b, err2 := netip.ParseAddr(strings.TrimSpace(last))
		if err != nil || err2 != nil || a.Is4() != b.Is4() || a.Zone()+b.Zone() != "" || b.Less(a) {
			return Pool{}, fmt.Errorf("%.80q is not a range of addresses", s)
		}
		return Pool{a, b}, nil
	}
	n, err := ParseNetwork(s)
	if err != nil {
		return Pool{}, err
	}
	a := n.Addr()
	b := LastAddr(n)
	if a.BitLen()-n.Bits() > 1 {
		a = a.Next()
		b = b.Prev()
	}
	return Pool{a, b}, nil
}
