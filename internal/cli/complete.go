package cli

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Complete registers a list as the completions of a flag's values, or of the items of a flag
// that takes a list. Errors are not printed while the user is typing.
func Complete(c *cobra.Command, flag string, list func(context.Context) ([]string, error)) {
	err := c.RegisterFlagCompletionFunc(flag, func(about *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		values, err := list(about.Context())
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		if f := about.Flag(flag); f != nil && f.Value.Type() == "stringSlice" {
			values = nextItems(values, typed)
		}
		return values, cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic(err) // the flag does not exist: a bug in the command's constructor
	}
}

// nextItems returns what may be typed after the items of a list before the last comma: these
// items, and one that is not among them.
func nextItems(values []string, typed string) []string {
	end := strings.LastIndex(typed, ",") + 1
	chosen := strings.Split(typed[:end], ",")
	var out []string
	for _, v := range values {
		if !slices.Contains(chosen, v) {
			out = append(out, typed[:end]+v)
		}
	}
	return out
}

// CompleteArgument returns the completion of a command that takes one argument.
func CompleteArgument(list func(context.Context) ([]string, error)) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		values, err := list(c.Context())
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return values, cobra.ShellCompDirectiveNoFileComp
	}
}
