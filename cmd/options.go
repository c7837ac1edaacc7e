package cmd

import (
	"fmt"

	"github.com/spf13/cobra"
)

// newOptions is the command that lists the flags which other commands' help
// leaves out.
func newOptions(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "options",
		Short: "List the flags that every command takes",
		Long: `List the flags that every command takes.

` + configHelp,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(g.Out, "The following flags can be passed to any command:\n\n%s", c.InheritedFlags().FlagUsages())
			return err
		},
	}
}
