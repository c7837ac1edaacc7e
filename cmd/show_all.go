package cmd

import (
	"strings"

	"github.com/spf13/cobra"

	"subctl/internal/look"
)

// newShowAll returns the command that shows all tables. Its JSON has a list for each table.
func newShowAll(g *globals) *cobra.Command {
	s := &show{globals: g}
	all := tables()
	var nouns []string
	for _, t := range all {
		nouns = append(nouns, t.Noun)
	}
	last := len(nouns) - 1
	c := &cobra.Command{
		Use:     "all",
		Short:   "Show everything",
		Example: "  subctl show all\n  subctl show all --context west --watch",
		Long:    "Show " + strings.Join(nouns[:last], ", ") + " and " + nouns[last] + ".",
		Args:    g.noArguments,
		RunE:    func(c *cobra.Command, _ []string) error { return s.run(c.Context(), look.NewPanel(all...)) },
	}
	s.addFlags(c)
	return c
}
