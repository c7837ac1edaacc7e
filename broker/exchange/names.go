package exchange

import (
	"fmt"
	"regexp"
	"strings"
)

// NameRule specifies the names of a cluster's objects in clusters. A name must not read as the name
// of two clusters, even where one cluster ID starts with another ("a" and "a-b"): either
// the ID is the whole name; or what follows the ID in Prefix occurs in no cluster ID and
// in no Rest; or Prefix has the ID once and ends with a character that occurs in no Rest.
type NameRule struct {
	// Prefix is the beginning of the names; "{id}" stands for the cluster ID.
	Prefix string
	// Rest matches what follows the prefix, from ^ to $. If it is nil, nothing follows.
	Rest *regexp.Regexp
	// RestNoun is the noun for the rest in messages: "address".
	RestNoun string
}

const idInName = "{id}"

// Owns reports whether name is the name of an object of cluster id.
func (r NameRule) Owns(id, name string) bool {
	rest, ok := cutPrefix(name, r.Prefix, id)
	if r.Rest == nil {
		return ok && rest == ""
	}
	return ok && r.Rest.MatchString(rest)
}

// cutPrefix returns name without prefix, where "{id}" stands for id, and reports whether
// name starts so. It is called for every object in every pass, and allocates nothing.
func cutPrefix(name, prefix, id string) (rest string, ok bool) {
	literal, prefix, hasID := strings.Cut(prefix, idInName)
	if name, ok = strings.CutPrefix(name, literal); !ok || !hasID {
		return name, ok
	}
	if name, ok = strings.CutPrefix(name, id); !ok {
		return name, false
	}
	return cutPrefix(name, prefix, id)
}

// start returns the prefix of the names of cluster id.
func (r NameRule) start(id string) string { return strings.ReplaceAll(r.Prefix, idInName, id) }

// Expression returns Owns as a CEL expression, where variables.id is the cluster ID and
// variables.name the name.
func (r NameRule) Expression() string {
	prefix := nameExpression(r.Prefix)
	if r.Rest == nil {
		return "variables.name == " + prefix
	}
	length := "size(variables.id)"
	if n := strings.Count(r.Prefix, idInName); n > 1 {
		length += fmt.Sprintf(" * %d", n)
	}
	length += fmt.Sprintf(" + size(%s)", Quote(strings.ReplaceAll(r.Prefix, idInName, "")))
	return fmt.Sprintf("(variables.name.startsWith(%s) && variables.name.substring(%s).matches(%s))", prefix, length,
		Quote(r.Rest.String()))
}

// Form returns a CEL expression for the form of the names, as a text for people.
func (r NameRule) Form() string { return nameExpression(r.Prefix + "<" + r.RestNoun + ">") }

// nameExpression returns a CEL expression for a name with "{id}" in it.
func nameExpression(name string) string {
	var parts []string
	for i, literal := range strings.Split(name, idInName) {
		if i > 0 {
			parts = append(parts, "variables.id")
		}
		if literal != "" {
			parts = append(parts, Quote(literal))
		}
	}
	return strings.Join(parts, " + ")
}
