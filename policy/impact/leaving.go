package impact

import (
	"errors"
	"fmt"
	"slices"

	"subctl/internal/words"
	"subctl/policy/catalog"
)

// Leaving returns what it means if a cluster leaves, and the policies that were created on it are
// deleted with it.
func Leaving(all *catalog.Catalog, id string) Change { return Of(all, all.WithoutCluster(id)) }

// Dependents returns an error if pairs of other clusters change their cable, because the policies
// that were created on the cluster which leaves are deleted with it; nil if none do. name is what
// the error calls the cluster.
func (c Change) Dependents(id, name string) error {
	others := Change{
		Cables: slices.DeleteFunc(slices.Clone(c.Cables), func(x CableChange) bool { return x.Other(id) != "" }),
	}
	if len(others.Cables) == 0 {
		return nil
	}
	text := fmt.Sprintf("%s of other clusters would change their cable, because policies that were created on %s "+
		"are deleted with it", words.Count(len(others.Cables), "pair"), name)
	if worse := others.Refusal(); worse != nil {
		return fmt.Errorf("%s: %w", text, worse)
	}
	return errors.New(text)
}
