package cmd

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

// newOptions returns the command that lists the global flags, which the help of other
// commands omits.
func newOptions(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "options",
		Short: "List the global flags",
		Long: `List the global flags, which every command takes.

Most commands also have --output (-o), and the commands that show clusters have --contexts. A
command that lacks one of them prints why if the flag is set.

` + configHelp,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(g.Out, "The following flags can be passed to any command:\n\n%s", c.InheritedFlags().FlagUsages())
			return err
		},
	}
}

// before adds a check of the command line to those that a command makes before it runs.
func before(c *cobra.Command, check func() error) {
	earlier := c.PreRunE
	c.PreRunE = func(c *cobra.Command, args []string) error {
		if earlier != nil {
			if err := earlier(c, args); err != nil {
				return err
			}
		}
		if err := check(); err != nil {
			return usageError(err)
		}
		return nil
	}
}

// timeLimit gives a command the flag --timeout, which must be positive.
func timeLimit(c *cobra.Command, limit *time.Duration, standard time.Duration, usage string) {
	c.Flags().DurationVar(limit, "timeout", standard, usage)
	before(c, func() error {
		if *limit <= 0 {
			return fmt.Errorf("--timeout %v is not positive: specify a duration such as 2m", *limit)
		}
		return nil
	})
}
