package cmd

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/internal/progress"
)

// globals is what every command shares. There are no package variables.
type globals struct {
	genericiooptions.IOStreams
	// kube is kubectl's flags, but for --namespace (a command that has a choice
	// declares its own), --token (a secret does not belong on a command line) and
	// --cache-dir (nothing is cached): those fields are nil.
	kube *genericclioptions.ConfigFlags
	// config is the environment and the configuration file.
	config config

	connect func(context.Context, *rest.Config) (client.Client, error)
	now     func() time.Time

	// started is set when the command line was found right and the command runs.
	started bool
}

func newGlobals(io genericiooptions.IOStreams) *globals {
	kube := genericclioptions.NewConfigFlags(false)
	kube.Namespace, kube.BearerToken, kube.CacheDir = nil, nil, nil
	g := &globals{IOStreams: io, kube: kube, now: time.Now}
	g.connect = g.dial
	return g
}

// progress returns a reporter on stderr.
func (g *globals) progress() *progress.Reporter { return progress.New(g.ErrOut) }

// addFlags declares the flags that every command takes.
func (g *globals) addFlags(root *cobra.Command) {
	g.kube.AddFlags(root.PersistentFlags())
	root.PersistentFlags().Lookup("kubeconfig").Usage = "kubeconfig file to use, or several, separated as in $KUBECONFIG"
	complete(root, "context", func(context.Context) ([]string, error) { return g.contexts() })
}

// complete makes the values of a flag complete from a list. What goes wrong
// while the user is still typing is not worth a word.
func complete(c *cobra.Command, flag string, list func(context.Context) ([]string, error)) {
	err := c.RegisterFlagCompletionFunc(flag, func(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		values, err := list(c.Context())
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return values, cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic(err) // the flag does not exist: a mistake in the command's constructor
	}
}
