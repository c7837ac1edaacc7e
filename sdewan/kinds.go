package sdewan

import (
	"fmt"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	ipsec "subctl/api/sdewan/ipsec/v1alpha1"
	batch "subctl/api/sdewan/v1alpha1"
	"subctl/sdewan/rest"
)

// Rule is an object that applies to a CNF: an object of one of Kinds.
type Rule interface {
	metav1.Object
	runtime.Object
	// RuleStatus returns the status, which the caller may change.
	RuleStatus() *batch.RuleStatus
}

// Kind is a kind of rules. Its functions accept only rules that New or the list returns.
type Kind struct {
	// GVK has the group, the version and the name of the kind.
	GVK schema.GroupVersionKind
	// Resource is the plural, as in URLs of the API server: mwan3rules.
	Resource string
	// New returns an empty object, and NewList an empty list, for meta.EachListItem.
	New     func() Rule
	NewList func() runtime.Object
	// Collection has the rules' objects on a CNF, and the service to restart after a change.
	// Several kinds share a collection: see Older.
	Collection *rest.Collection
	// Render returns the object that stands for a rule on a CNF with these networks. The error
	// names all networks that the CNF does not have.
	Render func(Rule, Networks) (rest.Object, error)
	// Uses returns which other rules must be on a CNF before a rule, in the order of its fields.
	Uses func(Rule) []Use
}

// Use is a reference from a rule to another one with the same PurposeLabel, in the same namespace.
type Use struct {
	// Kind is the kind of the other rule, in whichever group: Mwan3Policy.
	Kind string
	// Collection has the other rule's object on a CNF.
	Collection *rest.Collection
	// Name is the name of the other rule.
	Name string
	// Field has the reference: spec.policy.
	Field string
}

// String returns the kind and the name.
func (u Use) String() string { return u.Kind + " " + u.Name }

// table has all kinds, in the order in which they must be created on a CNF: rules use only rules of
// earlier kinds.
var table = []Kind{
	kind(batch.GroupVersion, "mwan3policies", &batch.Mwan3PolicyList{}, rest.Policies, renderPolicy, nil),
	kind(batch.GroupVersion, "mwan3rules", &batch.Mwan3RuleList{}, rest.Rules, renderRule, usesOfRule),
	kind(batch.GroupVersion, "firewallzones", &batch.FirewallZoneList{}, rest.Zones, renderZone, nil),
	kind(batch.GroupVersion, "firewallforwardings", &batch.FirewallForwardingList{}, rest.Forwardings, renderForwarding,
		usesOfForwarding),
	kind(batch.GroupVersion, "firewallrules", &batch.FirewallRuleList{}, rest.FirewallRules, renderFirewallRule,
		usesOfFirewallRule),
	kind(batch.GroupVersion, "firewallsnats", &batch.FirewallSNATList{}, rest.Redirects, renderSNAT, usesOfSNAT),
	kind(batch.GroupVersion, "firewalldnats", &batch.FirewallDNATList{}, rest.Redirects, renderDNAT, usesOfDNAT),
	kind(batch.GroupVersion, "ipsecproposals", &batch.IpsecProposalList{}, rest.Proposals,
		renderProposal[*batch.IpsecProposal], nil),
	kind(ipsec.GroupVersion, "ipsecproposals", &ipsec.IpsecProposalList{}, rest.Proposals,
		renderProposal[*ipsec.IpsecProposal], nil),
	kind(batch.GroupVersion, "ipsecsites", &batch.IpsecSiteList{}, rest.Remotes, renderRemote[*batch.IpsecSite],
		usesOfRemote[*batch.IpsecSite]),
	kind(ipsec.GroupVersion, "ipsecsites", &ipsec.IpsecSiteList{}, rest.Remotes, renderRemote[*ipsec.IpsecSite],
		usesOfRemote[*ipsec.IpsecSite]),
	kind(batch.GroupVersion, "ipsechosts", &batch.IpsecHostList{}, rest.Remotes, renderRemote[*batch.IpsecHost],
		usesOfRemote[*batch.IpsecHost]),
	kind(ipsec.GroupVersion, "ipsechosts", &ipsec.IpsecHostList{}, rest.Remotes, renderRemote[*ipsec.IpsecHost],
		usesOfRemote[*ipsec.IpsecHost]),
	kind(batch.GroupVersion, "networkfirewallrules", &batch.NetworkFirewallRuleList{}, rest.NetworkRules,
		renderNetworkRule, nil),
	kind(batch.GroupVersion, "cnfservices", &batch.CNFServiceList{}, rest.NATs, renderService, nil),
	kind(batch.GroupVersion, "cnfnats", &batch.CNFNATList{}, rest.NATs, renderNAT, nil),
	kind(batch.GroupVersion, "cnfroutes", &batch.CNFRouteList{}, rest.Routes, renderRoute, nil),
	kind(batch.GroupVersion, "cnfrouterules", &batch.CNFRouteRuleList{}, rest.RouteRules, renderRouteRule, nil),
}

// kind returns a Kind for the rules *T that list, a pointer to a struct with Items []T, holds.
func kind[T any, P interface {
	*T
	Rule
}](gv schema.GroupVersion, resource string, list runtime.Object, collection *rest.Collection,
	render func(P, Networks) (rest.Object, error), uses func(P) []Use,
) Kind {
	return Kind{
		GVK:        gv.WithKind(reflect.TypeFor[T]().Name()),
		Resource:   resource,
		New:        func() Rule { return P(new(T)) },
		NewList:    list.DeepCopyObject,
		Collection: collection,
		Render: func(r Rule, n Networks) (rest.Object, error) {
			typed, ok := r.(P)
			if !ok {
				return nil, fmt.Errorf("rendering %T as %s", r, reflect.TypeFor[T]().Name())
			}
			o, err := render(typed, n)
			if err != nil {
				return nil, err
			}
			o.SetName(r.GetName())
			return o, nil
		},
		Uses: func(r Rule) []Use {
			typed, ok := r.(P)
			if uses == nil || !ok {
				return nil
			}
			return uses(typed)
		},
	}
}

// Kinds returns all kinds of rules, in the order in which they must be created on a CNF: rules use
// only rules of earlier kinds. It returns a copy.
func Kinds() []Kind { return slices.Clone(table) }

// KindOf returns the kind of a rule. It is false for a Rule of somebody else.
func KindOf(r Rule) (Kind, bool) {
	return find(func(k Kind) bool { return reflect.TypeOf(k.New()) == reflect.TypeOf(r) })
}

// KindOfResource returns the kind with this group and plural.
func KindOfResource(group, resource string) (Kind, bool) {
	return find(func(k Kind) bool { return k.GVK.Group == group && k.Resource == resource })
}

func find(match func(Kind) bool) (Kind, bool) {
	i := slices.IndexFunc(table, match)
	if i < 0 {
		return Kind{}, false
	}
	return table[i], true
}

// MayUse reports whether rules of the kind can refer to rules of another one.
func (k Kind) MayUse(other Kind) bool {
	switch other.Collection {
	case rest.Policies:
		return k.Collection == rest.Rules
	case rest.Zones:
		return k.Collection.Module == rest.Zones.Module && k.Collection != rest.Zones
	case rest.Proposals:
		return k.Collection == rest.Remotes
	}
	return false
}

// Rank is the place of the kind in Kinds.
func (k Kind) Rank() int { return slices.IndexFunc(table, func(o Kind) bool { return o.GVK == k.GVK }) }

// Older reports whether a takes precedence over b if both stand for the same object of a CNF: they
// have the same collection, name, PurposeLabel and namespace, as a FirewallSNAT and a FirewallDNAT
// can have, or an IpsecSite in each of its two groups. The first one in their Order does.
func Older(a, b Rule) bool { return Order(a, b) < 0 }
