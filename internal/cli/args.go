package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

// NoSuchCommand is the Args of a command that only groups other commands.
func NoSuchCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	c.SuggestionsMinimumDistance = 2
	err := fmt.Errorf("unknown command %q", c.CommandPath()+" "+args[0])
	if found := c.SuggestionsFor(args[0]); len(found) > 0 {
		return fmt.Errorf("%w: did you mean %q?", err, c.CommandPath()+" "+found[0])
	}
	return fmt.Errorf("%w: see %q", err, c.CommandPath()+" --help")
}

// NoArguments is the Args of a command that takes only flags.
func NoArguments(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("%s takes no arguments: omit %q", c.CommandPath(), args[0])
}

// OptionalName returns the Args of a command whose argument, if there is one, is the value of
// a flag: "delete NAME" is "delete --name NAME". It sets the flag.
func OptionalName(flag string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return nil
		case len(args) > 1:
			return fmt.Errorf("%s takes one argument: omit %q", c.CommandPath(), args[1])
		case c.Flags().Changed(flag):
			return fmt.Errorf("the argument and --%s both name the %s: set only one of them", flag, named(flag))
		}
		return c.Flags().Set(flag, args[0])
	}
}

// named returns what a flag that stands for an argument names.
func named(flag string) string {
	if flag == "name" {
		return "policy"
	}
	return flag
}

// Each calls do for c and all its subcommands.
func Each(c *cobra.Command, do func(*cobra.Command)) {
	do(c)
	for _, sub := range c.Commands() {
		Each(sub, do)
	}
}
