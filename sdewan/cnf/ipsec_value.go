package cnf

import (
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"subctl/dataplane"
	"subctl/internal/prefix"
	"subctl/internal/secret"
	"subctl/sdewan/rest"
)

// This file turns the values of IPsec objects into strongSwan's values.

// selectors parses networks separated by commas. They are sorted, each once. With an error it
// returns the networks that are right.
func selectors(text string) (out []netip.Prefix, err error) {
	for _, s := range items(text) {
		n, wrong := parseNet(s)
		if wrong != nil {
			err = cmp.Or(err, wrong)
			continue
		}
		out = append(out, n)
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return slices.Compact(out), err
}

// items splits a list separated by commas.
func items(text string) (out []string) {
	for _, s := range strings.Split(text, ",") {
		if s = strings.TrimSpace(s); s != "" {
			out = append(out, s)
		}
	}
	return out
}

// prefixes returns the networks that a pool consists of.
func prefixes(p dataplane.Pool) (out []netip.Prefix) {
	for a := p.First; a.IsValid() && a.Compare(p.Last) <= 0; {
		n := prefix.Host(a)
		for n.Bits() > 0 {
			larger := netip.PrefixFrom(a, n.Bits()-1)
			if larger.Masked().Addr() != a || rest.LastAddr(larger).Compare(p.Last) > 0 {
				break
			}
			n = larger
		}
		out = append(out, n)
		a = rest.LastAddr(n).Next()
	}
	return out
}

// presharedKey decodes a key as ipsec.secrets does: hexadecimal digits after 0x, base64 after 0s,
// otherwise text.
func presharedKey(text string) (key secret.Bytes, err error) {
	switch {
	case strings.HasPrefix(text, "0x"):
		key, err = hex.DecodeString(text[2:])
	case strings.HasPrefix(text, "0s"):
		key, err = base64.StdEncoding.DecodeString(text[2:])
	default:
		key = secret.Bytes(text)
	}
	if err != nil || len(key) == 0 {
		return nil, errors.New("pre_shared_key: after 0x there must be hexadecimal digits, and after 0s base64")
	}
	return key, nil
}

// proposals returns proposals in strongSwan's notation, and notes the ones that cannot be used.
func (p *plan) proposals(names []string, ike bool, note func(error)) (out []string) {
	for _, name := range names {
		o, ok := (&p.config).Get(rest.Proposals, name)
		if !ok {
			note(fmt.Errorf("the proposal %q does not exist", name))
			continue
		}
		if s := proposal(*o.(*rest.Proposal), ike, note); s != "" {
			out = append(out, s)
		}
	}
	return out
}

func proposal(o rest.Proposal, ike bool, note func(error)) string {
	aead := strings.Contains(o.Encryption, "gcm") || strings.Contains(o.Encryption, "ccm") ||
		strings.HasPrefix(o.Encryption, "chacha20")
	parts := []string{o.Encryption}
	switch {
	case aead && ike: // the cipher checks integrity: what the hash is for is the pseudo-random function
		prf := "prfsha256"
		for _, h := range []string{"sha384", "sha512"} {
			if strings.Contains(o.Hash, h[3:]) {
				prf = "prf" + h
			}
		}
		parts = append(parts, prf)
	case !aead && o.Hash == "":
		note(fmt.Errorf("the proposal %s has no hash_algorithm, which %s needs", o.Name, o.Encryption))
		return ""
	case !aead:
		parts = append(parts, o.Hash)
	}
	if o.DHGroup != "" {
		parts = append(parts, o.DHGroup)
	} else if ike {
		note(fmt.Errorf("the proposal %s has no dh_group, which the negotiation of keys needs", o.Name))
		return ""
	}
	return strings.Join(parts, "-")
}
