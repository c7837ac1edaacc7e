package agent

import (
	"slices"

	"subctl/api/submariner/v1alpha1"
	"subctl/policy"
)

// books keeps policies compiled until one of them changes: compiling reads the YAML in
// them, and the loop runs for every other change too.
type books struct {
	versions []string // of the policies
	book     *policy.Book
}

// of returns the policies compiled.
func (b *books) of(policies []*v1alpha1.CablePolicies) *policy.Book {
	versions := make([]string, 0, 3*len(policies))
	for _, p := range policies {
		versions = append(versions, p.Name, string(p.UID), p.ResourceVersion)
	}
	if b.book == nil || !slices.Equal(b.versions, versions) {
		b.versions, b.book = versions, policy.Compile(policies)
	}
	return b.book
}
