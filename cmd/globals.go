package cmd

import (
	"context"
	"fmt"
	"strings"
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
	f := root.PersistentFlags()
	g.kube.AddFlags(f)
	f.Lookup("kubeconfig").Usage = "kubeconfig file, or several files separated as in $KUBECONFIG"
	f.StringVar(g.kube.Context, "kubecontext", "", "the same as --context")
	for flag, names := range map[string]func() ([]string, error){
		"context": g.contexts, "kubecontext": g.contexts, "cluster": g.clusters, "user": g.users,
	} {
		complete(root, flag, func(context.Context) ([]string, error) { return names() })
	}
}

// contextFlags choose the clusters of a command. A command line has one of them, and the
// environment and the configuration file then set none.
var contextFlags = []string{"context", "kubecontext", "contexts"}

// checkContexts returns an error if the command line chooses the clusters twice.
func checkContexts(c *cobra.Command) error {
	var set []string
	for _, name := range contextFlags {
		if c.Flags().Changed(name) {
			set = append(set, "--"+name)
		}
	}
	if len(set) < 2 {
		return nil
	}
	return fmt.Errorf("%s both choose the clusters: set only one of them", strings.Join(set, " and "))
}

// checkTimeout returns an error if --request-timeout is not a duration.
func (g *globals) checkTimeout() error {
	if _, err := clientcmd.ParseTimeout(*g.kube.Timeout); err != nil {
		return fmt.Errorf("--request-timeout %q is not a duration: use seconds, or a number with a unit, such as 30s or 2m", *g.kube.Timeout)
	}
	return nil
}
