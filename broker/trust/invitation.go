package trust

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"subctl/internal/prefix"
)

// Invitation lets the holder of a key sign grants for one cluster within bounds.
type Invitation struct {
	// Key verifies the grants that are signed with the invitation.
	Key PublicKey `json:"key"`
	// Cluster is the ID of the invited cluster.
	Cluster string `json:"cluster"`
	// Networks contain the networks that may be granted; any, if empty.
	Networks []netip.Prefix `json:"networks,omitempty"`
	// Global is the global network of the cluster, which may be granted, too; zero if it has none.
	Global netip.Prefix `json:"global,omitzero"`
	// Gateways is the most gateways that may be granted.
	Gateways int `json:"gateways"`
	// ExportNamespaces are patterns within which the patterns of a grant must be, sorted. Without
	// them, a grant may allow exports from all namespaces but those that MayExport reserves.
	ExportNamespaces []string `json:"exportNamespaces,omitempty"`
	// Sets are the clustersets that may be granted, as far as the token discloses them, sorted.
	Sets []string `json:"-"`
	// Serial is the time when the invitation was signed, and Expires the time when it expires,
	// both in milliseconds since 1970. A grant of a later serial than Expires is not valid.
	Serial  int64 `json:"serial"`
	Expires int64 `json:"expires"`
}

// signedInvitation is an Invitation as it is signed.
type signedInvitation struct {
	Invitation
	Root digest `json:"root,omitzero"` // of the tree of the clustersets
}

// SignInvitation signs an invitation with the administrator's key. The token discloses all
// clustersets.
func (k Key) SignInvitation(i Invitation) (string, error) {
	root, whole, err := commit(i.Sets)
	if err != nil {
		return "", err
	}
	jws, err := k.sign(typeInvitation, signedInvitation{i, root})
	return jws + separator + whole, err
}

// Invitation verifies an invitation with the administrator's public key. It may have expired. It
// has the clustersets that the token discloses.
func (p PublicKey) Invitation(token string) (Invitation, error) {
	jws, disclosed, err := split(token)
	var i signedInvitation
	if err == nil {
		i, err = p.invitation(jws)
	}
	if err == nil && len(disclosed) > 1 {
		err = errors.New("it has more than one disclosure")
	}
	if err == nil {
		i.Sets, _, err = disclosed.open(0, i.Root)
	}
	if err != nil {
		return Invitation{}, fmt.Errorf("its invitation is not valid: %w", err)
	}
	return i.Invitation, nil
}

// invitation verifies the signed part of an invitation.
func (p PublicKey) invitation(jws string) (i signedInvitation, err error) {
	if err := p.verify(typeInvitation, jws, &i); err != nil {
		return i, err
	}
	switch {
	case i.Root == (digest{}):
		return i, errors.New("it was signed by an earlier version: ask for a new join file, which subctl invite writes")
	case i.Key.IsZero() || i.Cluster == "":
		return i, errors.New("it lacks a key or a cluster ID")
	}
	return i, nil
}

// invited verifies a grant that was signed with an invitation. What is disclosed must be in both
// trees.
func (p PublicKey) invited(jws string, disclosed disclosures) (Grant, error) {
	var claimed, g signedGrant
	if err := peek(jws, &claimed); err != nil { // only to find the invitation; verified below
		return Grant{}, err
	}
	i, err := p.invitation(claimed.Invitation)
	if err != nil {
		return Grant{}, fmt.Errorf("its invitation is not valid: %w", err)
	}
	if err := i.Key.verify(typeInvited, jws, &g); err != nil {
		return Grant{}, err
	}
	if err := g.open(disclosed); err != nil {
		return Grant{}, err
	}
	if i.Sets, _, err = disclosed.open(1, i.Root); err != nil {
		return Grant{}, fmt.Errorf("its invitation is not valid: %w", err)
	}
	if err := i.Covers(g.Grant); err != nil {
		return Grant{}, err
	}
	g.Invited = max(1, i.Serial)
	return g.Grant, g.check()
}

// Covers returns an error that names the bound of the invitation that a grant exceeds; nil if it
// exceeds none.
func (i Invitation) Covers(g Grant) error {
	switch {
	case g.Cluster != i.Cluster:
		return fmt.Errorf("the invitation is for cluster %q, not %q", i.Cluster, g.Cluster)
	case g.Serial < i.Serial || g.Serial > i.Expires:
		return fmt.Errorf("the invitation was valid from %s until %s, and the grant was signed at %s", Stamp(i.Serial),
			Stamp(i.Expires), Stamp(g.Serial))
	case g.Gateways > i.Gateways:
		return fmt.Errorf("the invitation is for %d gateways, not %d", i.Gateways, g.Gateways)
	}
	for _, set := range g.Sets {
		if !i.IsFor(set) {
			return fmt.Errorf("the invitation is for clustersets %s, not for %s", strings.Join(i.Sets, ", "), set)
		}
	}
	for _, n := range g.Networks {
		if !i.Allows(n) {
			return fmt.Errorf("the invitation does not cover network %s", n)
		}
	}
	return i.CoversExports(g.ExportNamespaces)
}

// CoversExports returns an error that names namespaces from which a grant with these patterns would
// allow exports, and the invitation does not; nil if there are none.
func (i Invitation) CoversExports(patterns []string) error {
	switch p := beyond(patterns, i.ExportNamespaces); {
	case p == "":
		return nil
	case len(i.ExportNamespaces) == 0:
		return fmt.Errorf(
			"the invitation does not cover exports from namespaces %q: it names none, and %s are reserved", p,
			strings.Join(reserved, ", "))
	case len(patterns) == 0:
		return fmt.Errorf("the invitation covers exports from namespaces %s, not from all",
			strings.Join(i.ExportNamespaces, ", "))
	default:
		return fmt.Errorf("the invitation covers exports from namespaces %s, not from %s",
			strings.Join(i.ExportNamespaces, ", "), p)
	}
}

// Allows reports whether a network may be granted.
func (i Invitation) Allows(n netip.Prefix) bool {
	return len(i.Networks) == 0 || prefix.Covers(i.Networks, n) ||
		i.Global.IsValid() && prefix.Covers([]netip.Prefix{i.Global}, n)
}

// IsFor reports whether a clusterset may be granted.
func (i Invitation) IsFor(set string) bool { return slices.Contains(i.Sets, set) }
