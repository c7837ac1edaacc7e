package trust

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"subctl/internal/prefix"
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
	// ExportNamespaces are patterns of the namespaces from which the cluster may export Services,
	// sorted: see MayExport.
	ExportNamespaces []string `json:"exportNamespaces,omitempty"`
	// Sets are the clustersets that the token of the grant discloses, sorted, and Whole is whether
	// these are all that the cluster is in. What is signed commits to the clustersets, but does not
	// name them: see Published.
	Sets  []string `json:"-"`
	Whole bool     `json:"-"`
	// Serial is the time when the grant was signed, in milliseconds since 1970. Of two grants
	// for one cluster the newer one counts: see Compare.
	Serial int64 `json:"serial"`
	// Invited is the serial of the invitation with which the grant was signed; 0 if the
	// administrator has signed it.
	Invited int64 `json:"-"`
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

// signedGrant is a Grant as it is signed. A grant that was signed with an invitation contains the
// bare token of the invitation.
type signedGrant struct {
	Grant
	Root       digest `json:"root,omitzero"` // of the tree of the clustersets
	Invitation string `json:"invitation,omitempty"`
}

// SignGrant signs a grant with the administrator's key. The token discloses all clustersets.
func (k Key) SignGrant(g Grant) (string, error) {
	root, whole, err := commit(g.Sets)
	if err != nil {
		return "", err
	}
	jws, err := k.sign(typeGrant, signedGrant{Grant: g, Root: root})
	return jws + separator + whole, err
}

// SignInvitedGrant signs a grant with the key of an invitation, which is the result of
// SignInvitation. The token discloses all clustersets.
func (k Key) SignInvitedGrant(g Grant, invitation string) (string, error) {
	root, whole, err := commit(g.Sets)
	if err != nil {
		return "", err
	}
	bare, invited, _ := strings.Cut(invitation, separator)
	jws, err := k.sign(typeInvited, signedGrant{Grant: g, Root: root, Invitation: bare})
	return jws + separator + whole + separator + invited, err
}

// Grant verifies a grant with the administrator's public key. The grant was signed by the
// administrator, or by an invitation of the administrator and within its bounds. It has the
// clustersets that the token discloses.
func (p PublicKey) Grant(token string) (Grant, error) {
	g, err := p.grant(token)
	if err != nil {
		return Grant{}, fmt.Errorf("its grant is not valid: %w", err)
	}
	return g, nil
}

func (p PublicKey) grant(token string) (Grant, error) {
	jws, disclosed, err := split(token)
	if err != nil {
		return Grant{}, err
	}
	typ, err := headerType(jws)
	if err != nil {
		return Grant{}, err
	}
	if typ == typeInvited {
		return p.invited(jws, disclosed)
	}
	var g signedGrant
	if err := p.verify(typeGrant, jws, &g); err != nil {
		return Grant{}, err
	}
	if len(disclosed) > 1 {
		return Grant{}, errors.New("it discloses clustersets of an invitation that it does not have")
	}
	if err := g.open(disclosed); err != nil {
		return Grant{}, err
	}
	return g.Grant, g.check()
}

// open sets the clustersets of a grant to those that are disclosed.
func (g *signedGrant) open(d disclosures) (err error) {
	if g.Root == (digest{}) {
		return errors.New("it was signed by an earlier version: the cluster must join again with subctl join")
	}
	g.Sets, g.Whole, err = d.open(0, g.Root)
	return err
}

// ClaimedGrant returns what a grant states, whoever signed it: to show it, not to trust it.
func ClaimedGrant(token string) (Grant, error) {
	jws, disclosed, err := split(token)
	if err != nil {
		return Grant{}, err
	}
	var g signedGrant
	if err := peek(jws, &g); err != nil {
		return Grant{}, err
	}
	if g.Invitation != "" {
		var i signedInvitation
		if err := peek(g.Invitation, &i); err != nil {
			return Grant{}, err
		}
		g.Invited = max(1, i.Serial)
	}
	err = g.open(disclosed)
	return g.Grant, err
}

// Authority returns when the administrator signed a grant, or the invitation with which it was
// signed. Who is invited chooses the serial of the grant, but not its authority.
func (g Grant) Authority() int64 {
	if g.Invited > 0 {
		return g.Invited
	}
	return g.Serial
}

// Compare returns a positive number if g is newer than another grant for the cluster, 0 if they are
// of the same age, otherwise a negative number. A later signature of the administrator makes a
// grant newer, whatever the serials are: a revocation and a new invitation are final for who held
// an earlier invitation.
func (g Grant) Compare(other Grant) int {
	return cmp.Or(cmp.Compare(g.Authority(), other.Authority()), cmp.Compare(g.Serial, other.Serial))
}

// Later returns the serial of a grant that is newer than g, which may be zero: now, in milliseconds
// since 1970, or what comes after g if the clock is behind. invited is Grant.Invited of the new
// grant. The serial of a grant of the administrator follows the authority of g, never a serial of
// the future that the holder of an invitation has chosen: a revocation of the day after would not
// cover it.
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
func (g Grant) Covers(n netip.Prefix) bool { return prefix.Covers(g.Networks, n) }

// MayExport reports whether the cluster may export Services of a namespace.
func (g Grant) MayExport(namespace string) bool { return MayExport(g.ExportNamespaces, namespace) }

// IsIn reports whether the token of the grant discloses that the cluster is in a clusterset.
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

// Stamp formats a serial or a sequence number, which is a time in milliseconds since 1970 (UTC),
// such as 2026-07-14T10:00:00Z (RFC 3339).
func Stamp(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339) }
