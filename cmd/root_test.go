package cmd

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/internal/cli"
)

func TestCommandLines(t *testing.T) {
	for name, test := range map[string]struct {
		args     []string
		contexts []string
		code     int
		stdout   string // a part of it
		stderr   string // all of it
	}{
		"nothing":         {code: 0, stdout: "Join clusters:"},
		"help":            {args: []string{"help", "show"}, code: 0, stdout: "subctl show [command]"},
		"help of a group": {args: []string{"show"}, code: 0, stdout: "subctl show [command]"},
		"version":         {args: []string{"version"}, code: 0, stdout: "subctl version: "},
		"version, JSON":   {args: []string{"version", "-o", "json"}, code: 0, stdout: "\"goVersion\": \"go"},
		"options":         {args: []string{"options"}, code: 0, stdout: "--kubeconfig string"},
		"bash completion": {args: []string{"completion", "bash"}, code: 0, stdout: "__start_subctl"},
		"context completes": {
			args:     []string{"__complete", "version", "--context", ""},
			contexts: []string{"west", "east"},
			code:     0,
			stdout:   "east\nwest\n:4\n",
			stderr:   "Completion ended with directive: ShellCompDirectiveNoFileComp\n",
		},
		"contexts complete": {
			args:     []string{"__complete", "show", "all", "--contexts", "west,"},
			contexts: []string{"west", "east"},
			code:     0,
			stdout:   "west,east\n:4\n",
			stderr:   "Completion ended with directive: ShellCompDirectiveNoFileComp\n",
		},
		"format completes": {
			args:   []string{"__complete", "version", "-o", ""},
			code:   0,
			stdout: "table\njson\nyaml\n:4\n",
			stderr: "Completion ended with directive: ShellCompDirectiveNoFileComp\n",
		},

		"no such command": {
			args: []string{"shwo"}, code: 2,
			stderr: "Error: unknown command \"subctl shwo\": did you mean \"subctl show\"?\n",
		},
		"no such command at all": {
			args: []string{"frobnicate"}, code: 2,
			stderr: "Error: unknown command \"subctl frobnicate\": see \"subctl --help\"\n",
		},
		"no such subcommand": {
			args: []string{"show", "conections"}, code: 2,
			stderr: "Error: unknown command \"subctl show conections\": did you mean \"subctl show connections\"?\n",
		},
		"no such flag": {
			args: []string{"show", "all", "--contxt", "west"}, code: 2,
			stderr: "Error: unknown flag: --contxt: did you mean --context?\n",
		},
		"no such flag at all": {
			args: []string{"version", "--frobnicate"}, code: 2,
			stderr: "Error: unknown flag: --frobnicate: see \"subctl version --help\"\n",
		},
		"no such short flag": {
			args: []string{"version", "-q"}, code: 2,
			stderr: "Error: unknown shorthand flag: 'q' in -q: see \"subctl version --help\"\n",
		},
		"wrong value": {
			args: []string{"version", "-o", "wide"}, code: 2,
			stderr: "Error: invalid argument \"wide\" for \"-o, --output\" flag: use table, json or yaml: see \"subctl version --help\"\n",
		},
		"missing flag": {
			args: []string{"show", "plan"}, code: 2,
			stderr: "Error: the name of the node is missing: subctl show plan NODE\n",
		},
		"node as argument and flag": {
			args: []string{"show", "plan", "gw-1", "--node", "gw-2"}, code: 2,
			stderr: "Error: the argument and --node both name the node: set only one of them\n",
		},
		"two nodes": {
			args: []string{"show", "plan", "gw-1", "gw-2"}, code: 2,
			stderr: "Error: subctl show plan takes one argument, and got \"gw-2\": see \"subctl show plan --help\"\n",
		},
		"contexts and context": {
			args:     []string{"show", "all", "--contexts", "west", "--context", "east"},
			contexts: []string{"west", "east"},
			code:     2,
			stderr:   "Error: --context and --contexts both choose the clusters: set only one of them\n",
		},
		"context and kubecontext": {
			args:     []string{"uninstall", "--kubecontext", "west", "--context", "east"},
			contexts: []string{"west", "east"},
			code:     2,
			stderr:   "Error: --context and --kubecontext both choose the clusters: set only one of them\n",
		},
		"kubecontext everywhere": {
			args: []string{"uninstall", "--kubecontext", "east"}, contexts: []string{"west", "east"}, code: 1,
			stderr: "Error: reaching the API server at https://east.test:6443 (context \"east\"): connection refused: is the cluster up, and the context right?\n",
		},
		"node as an argument": {
			args: []string{"show", "plan", "gw-1"}, contexts: []string{"west", "east"}, code: 1,
			stderr: "Error: reaching the API server at https://west.test:6443 (context \"west\"): connection refused: is the cluster up, and the context right?\n",
		},
		"no contexts, for a reason": {
			args: []string{"join", "f", "--contexts", "west,east"}, code: 2,
			stderr: "Error: subctl join has no --contexts: each cluster joins with its own ID and networks: choose it with --context\n",
		},
		"no contexts of policies, for a reason": {
			args: []string{"cable-policy", "list", "--contexts", "west,east"}, code: 2,
			stderr: "Error: subctl cable-policy list has no --contexts: clusters of a clusterset share their cable policies, so one of them is enough: choose it with --context\n",
		},
		"format without a dry run": {
			args: []string{"uninstall", "-o", "json"}, code: 2,
			stderr: "Error: --output requires --dry-run\n",
		},
		"no format, for a reason": {
			args: []string{"recover-broker-info", "-o", "json"}, code: 2,
			stderr: "Error: subctl recover-broker-info has no --output: its output is the join file, which --broker-info - prints\n",
		},
		"argument too many": {
			args: []string{"version", "please"}, code: 2,
			stderr: "Error: subctl version takes no arguments: omit \"please\"\n",
		},
		"help of no command": {
			args: []string{"help", "show", "conections"}, code: 2,
			stderr: "Error: unknown command \"subctl show conections\": did you mean \"subctl show connections\"?\n",
		},
		"completion for no shell": {
			args: []string{"completion", "xonsh"}, code: 2,
			stderr: "Error: unknown command \"subctl completion xonsh\": see \"subctl completion --help\"\n",
		},
		"no number": {
			args: []string{"join", "f", "--health-check-interval", "-1"}, code: 2,
			stderr: "Error: invalid argument \"-1\" for \"--health-check-interval\" flag: use a whole number, not negative: see \"subctl join --help\"\n",
		},
		"no duration": {
			args: []string{"deploy-broker", "--token-ttl", "1 day"}, code: 2,
			stderr: "Error: invalid argument \"1 day\" for \"--token-ttl\" flag: use a duration, such as 30s, 5m or 24h: see \"subctl deploy-broker --help\"\n",
		},
		"join from stdin": {
			args: []string{"join", "-", "--clusterid", "west"}, contexts: []string{"west"}, code: 1,
			stderr: "Error: join file on stdin is empty: copy it again\n",
		},
		"cluster ID without a kubeconfig": {
			args: []string{"join", "broker-info.subm"}, code: 1,
			stderr: "Error: no kubeconfig found in KUBECONFIG: specify one with --kubeconfig FILE or $KUBECONFIG, or create ~/.kube/config\n",
		},
		"cluster ID without a name": {
			args: []string{"join", "broker-info.subm", "--server", "https://west.test"}, code: 2,
			stderr: "Error: --clusterid is missing: the kubeconfig does not name the cluster\n",
		},
		"no timeout": {
			args: []string{"show", "connections", "--request-timeout", "soon"}, contexts: []string{"west"}, code: 2,
			stderr: "Error: invalid argument \"soon\" for \"--request-timeout\" flag: use seconds, or a number with a unit, such as 30s or 2m: see \"subctl show connections --help\"\n",
		},
		"no kubeconfig": {
			args: []string{"show", "connections"}, code: 1,
			stderr: "Error: no kubeconfig found in KUBECONFIG: specify one with --kubeconfig FILE or $KUBECONFIG, or create ~/.kube/config\n",
		},
		"kubeconfig not there": {
			args: []string{"show", "connections", "--kubeconfig", "not-there"}, code: 1,
			stderr: "Error: reading the kubeconfig: stat not-there: no such file or directory: specify another file with --kubeconfig FILE or $KUBECONFIG\n",
		},
		"no such context": {
			args: []string{"show", "connections", "--context", "north"}, contexts: []string{"west", "east"}, code: 2,
			stderr: "Error: there is no context \"north\" in the kubeconfig: it has east, west\n",
		},
		"no such context in a list": {
			args:     []string{"show", "connections", "--contexts", "west,north"},
			contexts: []string{"west", "east"},
			code:     2,
			stderr:   "Error: there is no context \"north\" in the kubeconfig: it has east, west\n",
		},
		"cluster out of reach": {
			args: []string{"show", "connections", "--context", "east"}, contexts: []string{"west", "east"}, code: 1,
			stderr: "Error: reaching the API server at https://east.test:6443 (context \"east\"): connection refused: is the cluster up, and the context right?\n",
		},
		"current cluster out of reach": {
			args: []string{"show", "plan", "--node", "gw-1"}, contexts: []string{"west", "east"}, code: 1,
			stderr: "Error: reaching the API server at https://west.test:6443 (context \"west\"): connection refused: is the cluster up, and the context right?\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := runIn(t, nil, test.contexts, test.args...)
			require.Equal(t, test.stderr, strings.ReplaceAll(got.stderr, os.Getenv("KUBECONFIG"), "KUBECONFIG"))
			require.Equal(t, test.code, got.code)
			if test.stdout == "" {
				require.Empty(t, got.stdout)
			}
			require.Contains(t, got.stdout, test.stdout)
		})
	}
}

func TestInterrupted(t *testing.T) {
	g, stdout, stderr := testGlobals(t, nil, "west")
	g.Connect = func(ctx context.Context, _ *rest.Config) (client.Client, error) { return nil, ctx.Err() }
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	require.Equal(t, cli.ExitInterrupted, run(ctx, g, []string{"show", "connections"}))
	require.Equal(t, "Error: interrupted\n", stderr.String())
	require.Empty(t, stdout.String())
}

// TestManners holds what all commands have in common.
func TestManners(t *testing.T) {
	g, _, _ := testGlobals(t, nil)
	cli.Each(newRoot(g), func(c *cobra.Command) {
		require.NotEmpty(t, c.Short, c.CommandPath())
		require.LessOrEqual(t, len(c.Short), 60, "%s: the first line of the help is too long", c.CommandPath())
		require.NotNil(t, c.RunE, "%s must return its errors", c.CommandPath())
		require.Nil(t, c.Run, c.CommandPath())
		require.NotNil(t, c.Args, "%s must say which arguments it takes", c.CommandPath())
		for _, flag := range cli.Lackable {
			has := c.Flags().Lookup(flag) != nil
			require.True(t, c.HasSubCommands() || has || cli.WhyLacking(c, flag) != "",
				"%s needs --%s, or a reason why it has none", c.CommandPath(), flag)
		}
		if c.HasParent() {
			require.Nil(t, c.PersistentPreRunE, "%s would not read the configuration", c.CommandPath())
		}
	})
}
