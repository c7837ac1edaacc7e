package cmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"subctl/internal/cli"
)

// newOptions returns the command that lists the global flags, which the help of other
// commands omits.
func newOptions(g *globals) *cobra.Command {
	c := &cobra.Command{
		Use:   "options",
		Short: "List the global flags",
		Long: `List the global flags, which every command takes.

Most commands also have --output (-o), and the commands that show clusters have --contexts. A
command that lacks one of them prints why if the flag is set.

` + cli.ConfigHelp,
		Args: cli.NoArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(g.Out, "The following flags can be passed to any command:\n\n%s",
				c.InheritedFlags().FlagUsages())
			return err
		},
	}
	cli.ContactsNoCluster(c, "")
	cli.Lacks(c, "output", "it prints text for people")
	return c
}
