package broker

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker/exchange"
	"subctl/globalnet"
)

// A member may announce the global networks to which its own Role gives it the verb announceVerb.
// RBAC authorizes nothing else with that verb, and no API has the resource announcedResource: only
// the admission policies here ask for it. See docs/adr/0030-global-networks.md.
const (
	announceVerb      = "announce"
	announcedResource = "globalnetworks"
)

// announceRule returns the right to announce global networks; to announce any without names.
func announceRule(names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		APIGroups: []string{
			submarinerv1.GroupVersion.Group,
		}, Resources: []string{announcedResource}, Verbs: []string{announceVerb}, ResourceNames: names,
	}
}

// mayAnnounce returns a CEL expression that reports whether the requesting user may announce a
// global network. The API server accepts no more than two authorization checks in an expression of
// a policy: see globalnet.MaxNetworks.
func mayAnnounce(base, network string) string {
	return fmt.Sprintf("authorizer.group('%s').resource('%s').namespace('%s').name(%s).check('%s').allowed()",
		submarinerv1.GroupVersion.Group, announcedResource, base, network, announceVerb)
}

// globalnetPolicy returns the policy that restricts the global networks, and the addresses in them,
// that members announce, to those for which they have the right. within is the range of the broker;
// the zero Prefix: none.
//
// Kubernetes 1.30 has no functions for networks in policies, so this one calculates with numbers.
func globalnetPolicy(base string, within netip.Prefix, kinds exchange.Table) []client.Object {
	prefix := "system:serviceaccount:" + base + ":" + memberPrefix
	field := func(name string) string {
		return fmt.Sprintf("object != null && has(object.spec) && has(object.spec.%[1]s) ? object.spec.%[1]s : []",
			name)
	}
	const network = ipv4Pattern + "/([12]?[0-9]|3[0-2])$"
	// The first address of a network n, and the number of its addresses.
	bounds := "[n].map(n, [" + numberOf(
		"n.split('/')[0]") + ", variables.sizes[int(n.split('/')[1])]]).map(r, [r[0] - r[0] % r[1], r[1]])"
	inRange := "[]"
	if within.IsValid() {
		first := uint64(binary.BigEndian.Uint32(within.Addr().AsSlice()))
		inRange = fmt.Sprintf(
			"variables.subnets.filter(n, n.matches('%s') && %s.all(r, r[0] < %d && %d < r[0] + r[1]))", network, bounds,
			first+uint64(1)<<(32-within.Bits()), first)
	}
	own := func(list string) string {
		return fmt.Sprintf("size(%[1]s) <= %[2]d && %[1]s.all(n, %[3]s)", list, globalnet.MaxNetworks,
			mayAnnounce(base, "n"))
	}
	refused := func(what, list string) string {
		return fmt.Sprintf(
			"'cluster ' + variables.id + ' may not announce the %s ' + %s.join(', ') + ', which the broker has not given to it: run subctl join with the version of the broker, or let the administrator of the broker run subctl deploy-broker again'",
			what, list)
	}
	return policy(base+"-globalnet", &admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{
			ResourceRules: kinds.NetworkRules(admissionv1.Create, admissionv1.Update),
		},
		MatchConditions: []admissionv1.MatchCondition{{
			Name: "a-member", Expression: fmt.Sprintf("request.userInfo.username.startsWith('%s')", prefix),
		}},
		Variables: []admissionv1.Variable{
			{Name: "id", Expression: fmt.Sprintf("request.userInfo.username.substring(%d)", len(prefix))},
			{Name: "sizes", Expression: sizesOfNetworks()},
			{Name: "networks", Expression: field("global_cidr")},
			{Name: "subnets", Expression: field("subnets")},
			{Name: "addresses", Expression: field("allocated_ips")},
			{Name: "inRange", Expression: inRange},
		},
		Validations: []admissionv1.Validation{{
			Expression: own("variables.networks"), MessageExpression: refused("global networks", "variables.networks"),
		}, {
			Expression: own(
				"variables.inRange"),
			MessageExpression: refused("networks in the range of global networks,", "variables.inRange"),
		}, {
			Expression: fmt.Sprintf(
				"size(variables.addresses) == 0 || size(variables.addresses) <= %[1]d && %[2]s && variables.subnets.all(n, n.matches('%[3]s')) && "+
					"variables.addresses.all(a, a.matches('%[4]s$') && variables.subnets.exists(n, %[5]s.all(r, r[0] <= %[6]s && %[6]s < r[0] + r[1])))",
				submarinerv1.MaxAllocatedIPs,
				own("variables.subnets"),
				network,
				ipv4Pattern,
				bounds,
				numberOf("a"),
			),
			MessageExpression: refused(fmt.Sprintf("allocated addresses (at most %d)", submarinerv1.MaxAllocatedIPs),
				"variables.addresses"),
		}},
	})
}

// ipv4Pattern is the start of a regular expression for an IPv4 address.
const ipv4Pattern = `^[0-9]{1,3}([.][0-9]{1,3}){3}`

// numberOf returns a CEL expression for an IPv4 address as a number.
func numberOf(address string) string {
	return fmt.Sprintf(
		"[%s.split('.')].map(o, int(o[0]) * 16777216 + int(o[1]) * 65536 + int(o[2]) * 256 + int(o[3]))[0]", address)
}

// sizesOfNetworks returns a CEL list: the number of addresses of an IPv4 network, by its prefix
// length.
func sizesOfNetworks() string {
	var sizes []string
	for bits := range 33 {
		sizes = append(sizes, fmt.Sprint(uint64(1)<<(32-bits)))
	}
	return "[" + strings.Join(sizes, ", ") + "]"
}
