package cmd

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"subctl/internal/cli"
	"subctl/internal/look"
)

// noArguments is the Args of a command that works on a cluster and takes only flags. A person who
// types "uninstall west" means cluster west: no message may lead to another cluster, such as the
// cluster of the current context, which a command without arguments works on.
func (g *globals) noArguments(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return g.stray(c, "no arguments", args[0])
}

// optionalName is cli.OptionalName, with the hints of noArguments.
func (g *globals) optionalName(flag string) cobra.PositionalArgs {
	checked := cli.OptionalName(flag)
	return func(c *cobra.Command, args []string) error {
		if len(args) > 1 {
			return g.stray(c, "one argument", args[1])
		}
		return checked(c, args)
	}
}

// stray returns the error about an argument that a command does not take.
func (g *globals) stray(c *cobra.Command, takes, arg string) error {
	err := fmt.Errorf("%s takes %s", c.CommandPath(), takes)
	names, unread := g.Contexts()
	switch {
	case unread != nil, len(names) == 0:
		return fmt.Errorf("%w, and got %q: see %q", err, arg, c.CommandPath()+" --help")
	case c.Flags().Changed("context"):
		return fmt.Errorf("%w besides --context, and got %q: see %q", err, arg, c.CommandPath()+" --help")
	}
	if context := g.contextOf(c.Context(), names, arg); context != "" {
		return fmt.Errorf("%w: to %s it, use --context %s", err, actionOf(c), context)
	}
	return fmt.Errorf("%w, and %q is neither a context of the kubeconfig nor the ID of a cluster that can be read: "+
		"choose the cluster with --context (%s)",
		err, arg, strings.Join(names, ", "))
}

// contextOf returns the context that a person means by a name: a context, or the ID of its cluster;
// empty if there is none.
func (g *globals) contextOf(ctx context.Context, names []string, name string) string {
	if slices.Contains(names, name) {
		return name
	}
	targets, err := g.AllTargets()
	if err != nil {
		return ""
	}
	for _, t := range targets {
		if sites := look.Known(ctx, []*look.Target{t}); len(sites) == 1 && sites[0].Joined() && sites[0].Name == name {
			return t.Context
		}
	}
	return ""
}

// actionOf returns what a command does, for "to … it".
func actionOf(c *cobra.Command) string {
	if c.HasParent() && c.Parent().Name() == "show" {
		return "show"
	}
	switch name := c.Name(); name {
	case "uninstall":
		return name
	default:
		return "choose"
	}
}
