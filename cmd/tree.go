package cmd

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"subctl/internal/words"
)

// This file gives all commands the same manners: what is wrong with a command
// line is said in one line, with a suggestion, and ends with exit code 2.

// prepare finishes the command tree under root.
func (g *globals) prepare(root *cobra.Command) {
	g.config.flags = allFlags(root)
	root.PersistentPreRunE = func(c *cobra.Command, _ []string) error { return g.config.apply(c) }
	root.SetFlagErrorFunc(flagError)
	root.SetUsageTemplate(usageTemplate(root.UsageTemplate()))
	each(root, func(c *cobra.Command) {
		if c.HasSubCommands() && !c.Runnable() {
			c.Args = noSuchCommand
			c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
			c.DisableFlagsInUseLine = true
		}
		run := c.RunE
		c.RunE = func(c *cobra.Command, args []string) error {
			g.started = true
			return run(c, args)
		}
	})
}

// each calls do for c and all commands under it.
func each(c *cobra.Command, do func(*cobra.Command)) {
	do(c)
	for _, sub := range c.Commands() {
		each(sub, do)
	}
}

// noSuchCommand is the Args of a command that only groups others.
func noSuchCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	c.SuggestionsMinimumDistance = 2
	err := fmt.Errorf("there is no command %q", c.CommandPath()+" "+args[0])
	if found := c.SuggestionsFor(args[0]); len(found) > 0 {
		return fmt.Errorf("%w: did you mean %q?", err, c.CommandPath()+" "+found[0])
	}
	return fmt.Errorf("%w: see %q", err, c.CommandPath()+" --help")
}

// flagError adds the most similar flag to the error about an unknown one.
func flagError(c *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || unknown.GetSpecifiedShortnames() != "" {
		return fmt.Errorf("%w: see %q", err, c.CommandPath()+" --help")
	}
	var names []string
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	if near := words.Nearest(unknown.GetSpecifiedName(), names); near != "" {
		return fmt.Errorf("%w: did you mean --%s?", err, near)
	}
	return fmt.Errorf("%w: see %q", err, c.CommandPath()+" --help")
}

// usageTemplate replaces the flags that every command takes, which would bury the
// command's own, by a pointer to where they are listed.
func usageTemplate(cobras string) string {
	before, rest, _ := strings.Cut(cobras, "{{if .HasAvailableInheritedFlags}}")
	_, after, _ := strings.Cut(rest, "{{end}}")
	return strings.Replace(before, "{{if .HasAvailableLocalFlags}}", "{{if and .HasParent .HasAvailableLocalFlags}}", 1) +
		"\n\nEvery command takes --context, --kubeconfig and the other flags that\n\"subctl options\" lists." + after
}
