package cmd

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/internal/progress"
)

// globals is the state that all commands share. There are no package variables.
type globals struct {
	genericiooptions.IOStreams
	// kube has kubectl's flags, except --namespace (commands that need it declare it),
	// --token (a secret does not belong on a command line) and --cache-dir (nothing is
	// cached). Those fields are nil.
	kube *genericclioptions.ConfigFlags
	// config is the environment and the configuration file.
	config config

	connect func(context.Context, *rest.Config) (client.Client, error)
	now     func() time.Time

	// started reports whether the command line is valid and the command runs.
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

// addFlags declares the global flags.
func (g *globals) addFlags(root *cobra.Command) {
	g.kube.AddFlags(root.PersistentFlags())
	root.PersistentFlags().Lookup("kubeconfig").Usage = "kubeconfig file, or several files separated as in $KUBECONFIG"
	complete(root, "context", func(context.Context) ([]string, error) { return g.contexts() })
}

// checkTimeout returns an error if --request-timeout is not a duration.
func (g *globals) checkTimeout() error {
	if _, err := clientcmd.ParseTimeout(*g.kube.Timeout); err != nil {
		return fmt.Errorf("--request-timeout %q is not a duration: use seconds, or a number with a unit, such as 30s or 2m", *g.kube.Timeout)
	}
	return nil
}

// complete registers a list as the completions of a flag's values. Errors are not printed
// while the user is typing.
func complete(c *cobra.Command, flag string, list func(context.Context) ([]string, error)) {
	err := c.RegisterFlagCompletionFunc(flag, func(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		values, err := list(c.Context())
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return values, cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic(err) // the flag does not exist: a bug in the command's constructor
	}
}
