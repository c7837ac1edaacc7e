package cmd

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"subctl/internal/cli"
)

// leaves returns the command lines of all commands that do something, without arguments.
func leaves(t *testing.T) map[string]*cobra.Command {
	t.Helper()
	g, _, _ := testGlobals(t, nil)
	out := map[string]*cobra.Command{}
	cli.Each(newRoot(g), func(c *cobra.Command) {
		if !c.HasSubCommands() && c.Name() != "help" && c.HasParent() {
			out[strings.TrimPrefix(c.CommandPath(), "subctl ")] = c
		}
	})
	return out
}

// TestStrayCluster types the name of a cluster behind commands that take none: no message leads to
// the cluster of the current context, which is another one.
func TestStrayCluster(t *testing.T) {
	w := world{"kind-west": {submariner("west")}, "kind-east": {submariner("east")}}
	contexts := []string{
		"kind-west", "kind-east",
	}
	for path, c := range leaves(t) {
		c.SetContext(t.Context())
		if c.Args(c, []string{"x"}) == nil || cli.Offline(c) || strings.HasPrefix(path, "agent") ||
			strings.Contains(c.Use, " ") {
			continue // it takes arguments, or no cluster
		}
		got := runIn(t, w, contexts, append(strings.Fields(path), "east")...)
		require.Equal(t, cli.ExitUsage, got.code, path)
		require.Contains(t, got.stderr, "use --context kind-east", path)
		require.NotContains(t, got.stderr, "omit", path)
	}
	require.Equal(t, "Error: subctl uninstall takes no arguments: to uninstall it, use --context kind-east\n",
		runIn(t, w, contexts, "uninstall", "east").stderr)
	require.Contains(t, runIn(t, w, contexts, "uninstall", "kind-east").stderr, "use --context kind-east")
	require.Contains(t, runIn(t, w, contexts, "uninstall", "north").stderr,
		"choose the cluster with --context (kind-east, kind-west)")
}

// TestEmptyValues sets each flag of each command to an empty text, as a script does whose variable
// is not set. One that its type does not refuse is refused before the command runs.
func TestEmptyValues(t *testing.T) {
	for path, c := range leaves(t) {
		c.Flags().AddFlagSet(c.InheritedFlags())
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if c.Flags().Set(f.Name, "") != nil {
				return
			}
			require.ErrorContains(t, cli.CheckEmpty(c), "--"+f.Name+" is empty: specify a value", path)
			f.Changed = false
		})
	}
	for _, args := range [][]string{
		{"uninstall", "--context", "", "--yes"},
		{"join", "f", "--image", ""},
		{"show", "clusters", "--contexts", "west,"},
		{"show", "plan", "gw", "--kubecontext", ""},
		{"join", "f", "--clusterid", ""},
		{"join", "f", "--cable-drivers", ""},
		{"version", "--context", ""},
	} {
		got := runIn(t, nil, []string{"west"}, args...)
		require.Equal(t, cli.ExitUsage, got.code, args)
		require.Contains(t, got.stderr, " is empty: specify a value (is a variable not set?)\n", args)
	}
}
