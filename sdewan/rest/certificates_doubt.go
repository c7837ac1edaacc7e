package rest

import (
	"crypto/x509"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Doubts returns the reasons why this end and the other end will not accept each other's
// certificates, as far as the Remote alone shows them. The Remote is valid nevertheless: a
// certificate may become valid, or be renewed, later. If now is zero, Doubts does not check times.
func (o *Remote) Doubts(now time.Time) (doubts []string) {
	if o.Auth != "pubkey" {
		return nil
	}
	if _, err := o.Identity(); err != nil {
		return nil // this is reported instead
	}
	mine, _ := parseAll(o.LocalCert, parseCertificate)
	authorities, _ := parseAll(o.CA, parseCertificate)
	for _, f := range []struct {
		field string
		certs []*x509.Certificate
	}{{"local_public_cert", mine}, {"shared_ca", authorities}} {
		for i, c := range f.certs {
			which := fmt.Sprintf("%s: certificate %d (%.60q)", f.field, i+1, c.Subject.String())
			switch {
			case now.IsZero():
			case now.After(c.NotAfter):
				doubts = append(
					doubts,
					fmt.Sprintf("%s has expired, at %s: provide a new one", which,
						c.NotAfter.UTC().Format(time.RFC3339)),
				)
			case now.Before(c.NotBefore):
				doubts = append(doubts,
					fmt.Sprintf("%s is not valid before %s", which, c.NotBefore.UTC().Format(time.RFC3339)))
			}
		}
	}
	if !slices.ContainsFunc(mine, func(c *x509.Certificate) bool { return mayContain(c, o.LocalID) }) {
		doubts = append(
			doubts,
			fmt.Sprintf(
				"local_identifier: the certificate in local_public_cert does not contain %.80q: specify its subject (%.80q) or one of its alternative names, or nothing",
				o.LocalID, mine[0].Subject.String()),
		)
	}
	return doubts
}

// mayContain reports whether a certificate may contain an IKE identity in strongSwan's notation:
// false only if it certainly does not.
func mayContain(c *x509.Certificate, id string) bool {
	host := strings.TrimPrefix(id, "@")
	ip, err := netip.ParseAddr(id)
	switch {
	case id == "" || strings.ContainsAny(id, "*%:#") && err != nil: // any, patterns, and types of their own
		return true
	case err == nil:
		return slices.ContainsFunc(c.IPAddresses,
			func(own net.IP) bool { a, _ := netip.AddrFromSlice(own); return a.Unmap() == ip.Unmap() })
	case strings.Contains(id, "="):
		return subject(c, id)
	case strings.Contains(host, "@"):
		return slices.ContainsFunc(c.EmailAddresses, func(own string) bool { return strings.EqualFold(own, host) })
	}
	return slices.ContainsFunc(c.DNSNames, func(own string) bool {
		suffix, any := strings.CutPrefix(own, "*")
		return strings.EqualFold(own, host) || any && strings.HasSuffix(strings.ToLower(host), strings.ToLower(suffix))
	})
}

// subject reports whether a certificate may have a subject, given as attributes such as "C=CH,
// CN=hub".
func subject(c *x509.Certificate, id string) bool {
	attributes := 0
	for _, n := range c.Subject.Names {
		value, ok := n.Value.(string)
		if !ok || strings.ContainsAny(value, `,/"\`) {
			return true // there are several notations
		}
		if !strings.Contains(strings.ToLower(id), strings.ToLower(value)) {
			return false
		}
		attributes += 1 + strings.Count(value, "=")
	}
	return strings.Count(id, "=") == attributes
}
