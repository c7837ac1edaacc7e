package cli

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Complete registers a list as the completions of a flag's values, or of the items of a flag
// that takes a list. Errors are not printed while the user is typing.
func Complete(c *cobra.Command, flag string, list func(context.Context) ([]string, error)) {
	err := c.RegisterFlagCompletionFunc(
		flag,
		func(about *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
			values, err := list(about.Context())
			if err != nil {
				return nil, cobra.ShellCompDirectiveError
			}
			if f := about.Flag(flag); f != nil && f.Value.Type() == "stringSlice" {
				values = nextItems(values, typed)
			}
			return values, cobra.ShellCompDirectiveNoFileComp
		},
	)
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

// fileFlags are the flags whose values are names of files.
var fileFlags = []string{
	"broker-info", "cache-dir", "certificate-authority", "client-certificate", "client-key", "filename",
	"ipsec-psk-from", "join-file", "kubeconfig", "networks-file", "password-file", "signing-key-from", "state-file",
	"tls-cert", "tls-key", "uplinks-file",
}

// CompleteNoFiles makes the shell offer no names of files for the values of the flags of a command
// that are no files, and for its arguments, unless the command completes them.
func CompleteNoFiles(c *cobra.Command, argumentIsFile bool) {
	if c.ValidArgsFunction == nil && !argumentIsFile {
		c.ValidArgsFunction = cobra.NoFileCompletions
	}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if _, completes := c.GetFlagCompletionFunc(f.Name); completes || f.NoOptDefVal != "" ||
			slices.Contains(fileFlags, f.Name) {
			return
		}
		if err := c.RegisterFlagCompletionFunc(f.Name, cobra.NoFileCompletions); err != nil {
			panic(err) // a mistake of the program
		}
	})
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
