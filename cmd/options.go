package cmd

import (
	"fmt"

	"github.com/spf13/cobra"
)

// newOptions returns the command that lists the global flags, which the help of other
// commands omits.
func newOptions(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "options",
		Short: "List the global flags",
		Long: `List the global flags, which every command takes.

` + configHelp,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(g.Out, "The following flags can be passed to any command:\n\n%s", c.InheritedFlags().FlagUsages())
			return err
		},
	}
}
