package exchange

import (
	"fmt"
	"strings"

	submarinerv1 "subctl/api/submariner/v1"
)

// This file makes the CEL expressions that the table of kinds is written with. CEL cannot
// measure a whole object, so the strings in it are counted, each with the least that JSON
// puts around it. An object that MaxSize allows is therefore never refused.

// SizeOfMaps returns a CEL expression for the size of fields that are maps of strings.
// Fields may be missing.
func SizeOfMaps(object string, fields ...string) string { return sizeOf(object, sizeOfMap, fields) }

// SizeOfLists returns a CEL expression for the size of fields that are lists of strings.
// Fields may be missing.
func SizeOfLists(object string, fields ...string) string { return sizeOf(object, sizeOfList, fields) }

func sizeOf(object string, size func(string) string, fields []string) string {
	terms := make([]string, len(fields))
	for i, f := range fields {
		terms[i] = optional(object, f, size)
	}
	return strings.Join(terms, " + ")
}

// optional returns a CEL expression for the size of a field, which may be missing.
func optional(object, field string, size func(string) string) string {
	return fmt.Sprintf("(has(%[1]s.%[2]s) ? %[3]s : 0)", object, field, size(object+"."+field))
}

func sizeOfMap(m string) string {
	return fmt.Sprintf("%[1]s.map(k, size(k) + size(%[1]s[k]) + 6).sum()", m)
}

func sizeOfList(l string) string { return l + ".map(s, size(s) + 3).sum()" }

// sizeOfRules returns a CEL expression for the size of the rules of a cable policy.
func sizeOfRules(rules string) string {
	requirements := func(l string) string {
		return l + ".map(q, size(q.key) + " + SizeOfLists("q", "values") + ").sum()"
	}
	selector := func(s string) string {
		return SizeOfMaps(s, "matchLabels") + " + " + optional(s, "matchExpressions", requirements)
	}
	options := func(o string) string { return SizeOfMaps(o, "data") }
	return rules + ".map(r, " + optional("r", "leftClusterSelector", selector) + " + " +
		optional("r", "rightClusterSelector", selector) + " + " +
		optional("r", "options", options) + ").sum()"
}

// sizeOfServices returns a CEL expression for the size of the records of a page of exported
// Services. Numbers count as one digit.
func sizeOfServices(services string) string {
	text := func(s string) string { return "size(" + s + ")" }
	ports := func(l string) string {
		return l + ".map(p, 10 + " + optional("p", "name", text) + " + " + optional("p", "appProtocol", text) +
			").sum()"
	}
	pods := "g.pods.map(e, 9 + size(e.ip) + " + optional("e", "hostname", text) + " + " + optional("e", "zone", text) +
		").sum()"
	groups := func(l string) string { return l + ".map(g, 24 + size(g.targets) + " + pods + ").sum()" }
	terms := []string{"41 + size(s.namespace) + size(s.name)", SizeOfMaps("s", "labels", "annotations")}
	for _, f := range []string{"internalTrafficPolicy", "trafficDistribution", "address"} {
		terms = append(terms, optional("s", f, text))
	}
	terms = append(terms, optional("s", "ports", ports), optional("s", "endpoints", groups))
	return services + ".map(s, " + strings.Join(terms, " + ") + ").sum()"
}

// Quote returns s as a CEL string.
func Quote(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(s) + "'"
}

// setExpression is a CEL expression for the clusterset of the namespace in which a request is.
const setExpression = "namespaceObject.metadata.labels['" + submarinerv1.ClusterSetLabel + "']"
