// Package connect leads from a kubeconfig and kubectl's flags to the clients of API servers:
// of one cluster, of the two ends of a change, or of all clusters to look at. It gives each
// problem on the way a one-line error with a remedy. It reads only an API server's version;
// what commands read of clusters is in package look.
package connect

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Kubeconfig is the kubeconfig that the flags, $KUBECONFIG or the home directory name, with
// the values of the flags.
type Kubeconfig struct {
	// Flags are kubectl's flags, except --namespace (commands that need it declare it),
	// --token (a secret does not belong on a command line) and --cache-dir (nothing is
	// cached). Those fields are nil.
	Flags *genericclioptions.ConfigFlags
	// Connect returns a client, after a first answer of the API server.
	Connect func(context.Context, *rest.Config) (client.Client, error)
	// Now is the local clock.
	Now func() time.Time

	messages io.Writer // for warnings of API servers
}

// New returns a Kubeconfig without flags. Warnings of API servers are written to messages.
func New(messages io.Writer) *Kubeconfig {
	flags := genericclioptions.NewConfigFlags(false)
	flags.Namespace = nil
	flags.BearerToken = nil
	flags.CacheDir = nil
	return &Kubeconfig{Flags: flags, Connect: dial, Now: time.Now, messages: messages}
}

// AddFlags declares the flags, and returns the functions that list the values of some of them.
func (k *Kubeconfig) AddFlags(f *pflag.FlagSet) map[string]func() ([]string, error) {
	k.Flags.AddFlags(f)
	timeout := f.Lookup("request-timeout")
	timeout.Value = timeoutValue{timeout.Value}
	f.Lookup("kubeconfig").Usage = "kubeconfig file, or several files separated as in $KUBECONFIG"
	f.StringVar(k.Flags.Context, "kubecontext", "", "the same as --context")
	return map[string]func() ([]string, error){
		"context":     k.Contexts,
		"kubecontext": k.Contexts,
		"cluster":     k.clusters,
		"user":        k.users,
	}
}

// timeoutValue is the value of --request-timeout. kubectl's flag accepts any text.
type timeoutValue struct{ pflag.Value }

func (v timeoutValue) Set(text string) error {
	if _, err := clientcmd.ParseTimeout(text); err != nil {
		return errors.New("use seconds, or a number with a unit, such as 30s or 2m")
	}
	return v.Value.Set(text)
}

// Contexts returns the names of all contexts, sorted.
func (k *Kubeconfig) Contexts() ([]string, error) {
	raw, err := k.Raw()
	return slices.Sorted(maps.Keys(raw.Contexts)), err
}

// clusters returns the names of all clusters of the kubeconfig, sorted.
func (k *Kubeconfig) clusters() ([]string, error) {
	raw, err := k.Raw()
	return slices.Sorted(maps.Keys(raw.Clusters)), err
}

// users returns the names of all users of the kubeconfig, sorted.
func (k *Kubeconfig) users() ([]string, error) {
	raw, err := k.Raw()
	return slices.Sorted(maps.Keys(raw.AuthInfos)), err
}
