package trust

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// MaxGateways is the number of gateways that a grant allows unless an invitation allows fewer: as
// many as a cluster can announce. So nodes can become gateways without a new grant.
const MaxGateways = 16

// Grant states what a cluster may be. The administrator signs it when the cluster joins.
type Grant struct {
	// Cluster is the cluster's ID.
	Cluster string `json:"cluster"`
	// UID is the UID of the cluster's kube-system namespace, as on the broker's service
	// account of the member: it tells two clusters apart that use the same ID one after the
	// other.
	UID string `json:"uid,omitempty"`
	// Key verifies what the cluster publishes.
	Key PublicKey `json:"key"`
	// Networks are the pod, Service and global networks that the cluster may announce, sorted.
	Networks []netip.Prefix `json:"networks"`
	// Gateways is the most gateways that the cluster may announce.
	Gateways int `json:"gateways"`
	// Sets are the clustersets that the cluster is in, sorted.
	Sets []string `json:"sets"`
	// Serial is when the grant was signed, in milliseconds since 1970. Of two grants for one
	// cluster the newer one counts: see Compare.
	Serial int64 `json:"serial"`
	// Invited is the serial of the invitation with which the grant was signed; 0 if the
	// administrator has signed it.
	Invited int64 `json:"-"`
}

// Invitation lets the holder of a key sign grants for one cluster within bounds.
type Invitation struct {
	// Key verifies the grants that are signed with the invitation.
	Key PublicKey `json:"key"`
	// Cluster is the ID of the invited cluster.
	Cluster string `json:"cluster"`
	// Networks contain the networks that may be granted; any, if empty.
	Networks []netip.Prefix `json:"networks,omitempty"`
	// Gateways is the most gateways that may be granted.
	Gateways int `json:"gateways"`
	// Sets are the clustersets that may be granted.
	Sets []string `json:"sets"`
	// Serial is when the invitation was signed, and Expires when it ends, both in
	// milliseconds since 1970. A grant of a later serial than Expires is not valid.
	Serial  int64 `json:"serial"`
	Expires int64 `json:"expires"`
}

// Revocation makes all grants and invitations of a cluster void that were signed until Serial.
type Revocation struct {
	Cluster string `json:"cluster"`
	Serial  int64  `json:"serial"` // milliseconds since 1970
}

// Types of signatures, in the header.
const (
	typeGrant      = "subctl-grant+jws"
	typeInvited    = "subctl-invited-grant+jws"
	typeInvitation = "subctl-invitation+jws"
	typeRevocation = "subctl-revocation+jws"
	typeLeaving    = "subctl-leaving+jws"
	typeStatement  = "subctl-statement+jws"
)

// invited is a grant that was signed with an invitation.
type invited struct {
	Grant      Grant  `json:"grant"`
	Invitation string `json:"invitation"` // signed by the administrator
}

// SignGrant signs a grant with the administrator's key.
func (k Key) SignGrant(g Grant) (string, error) { return k.sign(typeGrant, g) }

// SignInvitation signs an invitation with the administrator's key.
func (k Key) SignInvitation(i Invitation) (string, error) { return k.sign(typeInvitation, i) }

// SignInvitedGrant signs a grant with the key of an invitation, which is the result of
// SignInvitation.
func (k Key) SignInvitedGrant(g Grant, invitation string) (string, error) {
	return k.sign(typeInvited, invited{g, invitation})
}

// SignRevocation signs a revocation with the administrator's key.
func (k Key) SignRevocation(r Revocation) (string, error) { return k.sign(typeRevocation, r) }

// Grant verifies a grant with the administrator's public key. The grant was signed by the
// administrator, or by an invitation of the administrator and within its bounds.
func (p PublicKey) Grant(token string) (Grant, error) {
	var g Grant
	typ, err := headerType(token)
	if err != nil {
		return Grant{}, err
	}
	if typ == typeInvited {
		g, err = p.invited(token)
	} else {
		err = p.verify(typeGrant, token, &g)
	}
	if err == nil {
		err = g.check()
	}
	if err != nil {
		return Grant{}, fmt.Errorf("its grant is not valid: %w", err)
	}
	return g, nil
}

func (p PublicKey) invited(token string) (Grant, error) {
	var claimed invited
	if err := peek(token, &claimed); err != nil { // only to find the invitation; verified below
		return Grant{}, err
	}
	i, err := p.Invitation(claimed.Invitation)
	if err != nil {
		return Grant{}, err
	}
	var g invited
	if err := i.Key.verify(typeInvited, token, &g); err != nil {
		return Grant{}, err
	}
	g.Grant.Invited = max(1, i.Serial)
	return g.Grant, i.Covers(g.Grant)
}

// Invitation verifies an invitation with the administrator's public key. It may have expired.
func (p PublicKey) Invitation(token string) (Invitation, error) {
	var i Invitation
	if err := p.verify(typeInvitation, token, &i); err != nil {
		return Invitation{}, fmt.Errorf("its invitation is not valid: %w", err)
	}
	if i.Key.IsZero() || i.Cluster == "" {
		return Invitation{}, errors.New("its invitation is not valid: it lacks a key or a cluster ID")
	}
	return i, nil
}

// Revocation verifies a revocation with the administrator's public key.
func (p PublicKey) Revocation(token string) (Revocation, error) {
	var r Revocation
	if err := p.verify(typeRevocation, token, &r); err != nil {
		return Revocation{}, fmt.Errorf("the revocation is not valid: %w", err)
	}
	return r, nil
}

// Covers returns an error that says what a grant exceeds; nil if the invitation allows it.
func (i Invitation) Covers(g Grant) error {
	switch {
	case g.Cluster != i.Cluster:
		return fmt.Errorf("the invitation is for cluster %q, not %q", i.Cluster, g.Cluster)
	case g.Serial < i.Serial || g.Serial > i.Expires:
		return fmt.Errorf("the invitation was valid from %s until %s, and the grant was signed at %s", Stamp(i.Serial), Stamp(i.Expires), Stamp(g.Serial))
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
	return nil
}

// Allows reports whether a network may be granted.
func (i Invitation) Allows(n netip.Prefix) bool { return len(i.Networks) == 0 || within(n, i.Networks) }

// IsFor reports whether a clusterset may be granted.
func (i Invitation) IsFor(set string) bool { return slices.Contains(i.Sets, set) }

// Revokes reports whether a revocation makes a grant void: one that was signed until then, or
// with an invitation that was.
func (r Revocation) Revokes(g Grant) bool {
	return g.Cluster == r.Cluster && g.Authority() <= r.Serial
}

// Authority returns when the administrator signed a grant, or the invitation with which it was
// signed. Who is invited chooses the serial of the grant, but not its authority.
func (g Grant) Authority() int64 {
	if g.Invited > 0 {
		return g.Invited
	}
	return g.Serial
}

// Compare returns a positive number if g is newer than another grant for the cluster, 0 if they
// are of the same age, otherwise a negative number. A later word of the administrator makes a grant
// newer, whatever the serials are: a revocation and a new invitation are final for who held an
// earlier invitation.
func (g Grant) Compare(other Grant) int {
	return cmp.Or(cmp.Compare(g.Authority(), other.Authority()), cmp.Compare(g.Serial, other.Serial))
}

// Later returns the serial of a grant that is newer than g, which may be zero: now, in milliseconds since 1970, or
// what comes after g if the clock is behind. invited is Grant.Invited of the new grant. The serial of a grant of the
// administrator follows the authority of g, never a serial of the future that the holder of an invitation has chosen:
// a revocation of the day after would not cover it.
func (g Grant) Later(now, invited int64) int64 {
	switch invited {
	case 0:
		return max(now, g.Authority()+1)
	case g.Invited:
		return max(now, g.Serial+1)
	}
	return now
}

// Covers reports whether a network is within a grant's networks.
func (g Grant) Covers(n netip.Prefix) bool { return within(n, g.Networks) }

// IsIn reports whether the cluster is in a clusterset.
func (g Grant) IsIn(set string) bool { return slices.Contains(g.Sets, set) }

// check returns what a grant lacks.
func (g Grant) check() error {
	switch {
	case g.Cluster == "":
		return errors.New("it has no cluster ID")
	case g.Key.IsZero():
		return errors.New("it has no signing key")
	case g.Serial <= 0:
		return errors.New("it has no serial")
	}
	for _, n := range g.Networks {
		if !n.IsValid() {
			return errors.New("it has an invalid network")
		}
	}
	return nil
}

// within reports whether one of the networks contains n.
func within(n netip.Prefix, networks []netip.Prefix) bool {
	return slices.ContainsFunc(networks, func(of netip.Prefix) bool {
		return of.Bits() <= n.Bits() && of.Contains(n.Addr())
	})
}

// Stamp formats a serial or a sequence number, which is a time in milliseconds since 1970 (UTC),
// such as 2026-07-14T10:00:00Z (RFC 3339).
func Stamp(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339) }

// ClaimedGrant returns what a grant states, whoever signed it: to show it, not to trust it.
func ClaimedGrant(token string) (Grant, error) {
	var g Grant
	typ, err := headerType(token)
	if err != nil {
		return Grant{}, err
	}
	if typ != typeInvited {
		return g, peek(token, &g)
	}
	var claimed invited
	var i Invitation
	if err := peek(token, &claimed); err != nil {
		return Grant{}, err
	}
	if err := peek(claimed.Invitation, &i); err != nil {
		return Grant{}, err
	}
	claimed.Grant.Invited = max(1, i.Serial)
	return claimed.Grant, nil
}
