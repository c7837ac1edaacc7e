package cmd

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// errNoKubeconfig reports that there is no kubeconfig.
var errNoKubeconfig = errors.New("no kubeconfig found: specify one with --kubeconfig FILE or $KUBECONFIG, or create ~/.kube/config")

// kubeconfig returns the merged kubeconfig files.
func (g *globals) kubeconfig() (clientcmdapi.Config, error) {
	loader, err := g.loader()
	if err != nil {
		return clientcmdapi.Config{}, err
	}
	raw, err := loader.RawConfig()
	if err != nil && !clientcmd.IsEmptyConfig(err) {
		return raw, unreadable(err)
	}
	return raw, nil
}

// unreadable returns the error about a kubeconfig that cannot be read. If the file contains
// something else, client-go's error describes Go types.
func unreadable(err error) error {
	if where, _, found := strings.Cut(err.Error(), ": couldn't get version/kind; "); found {
		err = fmt.Errorf("%s: the file is not a kubeconfig", where)
	}
	return fmt.Errorf("reading the kubeconfig: %w: specify another file with --kubeconfig FILE or $KUBECONFIG", err)
}

// contexts returns the names of all contexts, sorted.
func (g *globals) contexts() ([]string, error) {
	raw, err := g.kubeconfig()
	return slices.Sorted(maps.Keys(raw.Contexts)), err
}

// contextName returns the current context, which --context overrides. It is empty in a pod,
// and with --server and no kubeconfig.
func (g *globals) contextName() (string, error) {
	raw, err := g.kubeconfig()
	return cmp.Or(*g.kube.Context, raw.CurrentContext), err
}

// clusterName returns the name of the current cluster in the kubeconfig. It is empty in a
// pod, and with --server and no kubeconfig.
func (g *globals) clusterName() (string, error) {
	raw, err := g.kubeconfig()
	if err != nil {
		return "", err
	}
	if err := g.check(raw, cmp.Or(*g.kube.Context, raw.CurrentContext)); err != nil {
		return "", err
	}
	if *g.kube.ClusterName != "" {
		return *g.kube.ClusterName, nil
	}
	if c := raw.Contexts[cmp.Or(*g.kube.Context, raw.CurrentContext)]; c != nil {
		return c.Cluster, nil
	}
	return "", nil
}

// restConfig returns the client configuration of the current context.
func (g *globals) restConfig() (*rest.Config, error) { return g.restConfigFor(*g.kube.Context) }

// restConfigFor returns the client configuration of a context; "" is the current context.
// It must not be called concurrently.
func (g *globals) restConfigFor(context string) (*rest.Config, error) {
	raw, err := g.kubeconfig()
	if err != nil {
		return nil, err
	}
	if err := g.check(raw, cmp.Or(context, raw.CurrentContext)); err != nil {
		return nil, err
	}
	old := *g.kube.Context
	*g.kube.Context = context
	defer func() { *g.kube.Context = old }()
	loader, err := g.loader()
	if err != nil {
		return nil, err
	}
	cfg, err := loader.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	cfg.WarningHandler = apiWarnings{g.progress()}
	return cfg, nil
}

// check returns an error if the kubeconfig has no usable context. Otherwise client-go would
// fall back to localhost:8080.
func (g *globals) check(raw clientcmdapi.Config, context string) error {
	known := slices.Sorted(maps.Keys(raw.Contexts))
	switch {
	case context != "" && len(known) == 0 && *g.kube.APIServer == "":
		return fmt.Errorf("there is no context %q: %w", context, errNoKubeconfig)
	case context != "" && raw.Contexts[context] == nil:
		err := fmt.Errorf("there is no context %q in the kubeconfig: it has %s", context, strings.Join(known, ", "))
		return usageError(err)
	case *g.kube.APIServer != "" || *g.kube.ClusterName != "":
		return nil
	case context != "":
		if name := raw.Contexts[context].Cluster; raw.Clusters[name] == nil {
			return fmt.Errorf("the kubeconfig has no cluster %q, which its context %q refers to", name, context)
		}
		return nil
	case len(known) > 0:
		return fmt.Errorf("the kubeconfig has no current context: choose one with --context (%s)", strings.Join(known, ", "))
	}
	if _, err := rest.InClusterConfig(); err != nil {
		return errNoKubeconfig
	}
	return nil
}

// loader returns a loader of the kubeconfig: of the files of --kubeconfig, which may be
// several, or else of $KUBECONFIG.
func (g *globals) loader() (clientcmd.ClientConfig, error) {
	files := slices.DeleteFunc(filepath.SplitList(*g.kube.KubeConfig), func(f string) bool { return f == "" })
	if len(files) < 2 {
		return g.kube.ToRawKubeConfigLoader(), nil
	}
	for _, file := range files { // clientcmd would skip missing files
		if _, err := os.Stat(file); err != nil {
			return nil, unreadable(err)
		}
	}
	rules := &clientcmd.ClientConfigLoadingRules{Precedence: files, DefaultClientConfig: &clientcmd.DefaultClientConfig}
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, g.overrides()), nil
}

// overrides returns kubectl's flags except --kubeconfig. genericclioptions does not export
// them, and supports only one file.
func (g *globals) overrides() *clientcmd.ConfigOverrides {
	k := g.kube
	o := &clientcmd.ConfigOverrides{ClusterDefaults: clientcmd.ClusterDefaults, CurrentContext: *k.Context, Timeout: *k.Timeout}
	o.Context.Cluster, o.Context.AuthInfo = *k.ClusterName, *k.AuthInfoName
	o.ClusterInfo.Server, o.ClusterInfo.TLSServerName = *k.APIServer, *k.TLSServerName
	o.ClusterInfo.CertificateAuthority, o.ClusterInfo.InsecureSkipTLSVerify = *k.CAFile, *k.Insecure
	o.ClusterInfo.DisableCompression, o.ClusterInfo.ProxyURL = *k.DisableCompression, *k.ProxyURL
	o.AuthInfo.ClientCertificate, o.AuthInfo.ClientKey = *k.CertFile, *k.KeyFile
	o.AuthInfo.Impersonate, o.AuthInfo.ImpersonateUID, o.AuthInfo.ImpersonateGroups = *k.Impersonate, *k.ImpersonateUID, *k.ImpersonateGroup
	for _, extra := range *k.ImpersonateUserExtra {
		if key, value, ok := strings.Cut(extra, "="); ok {
			if o.AuthInfo.ImpersonateUserExtra == nil {
				o.AuthInfo.ImpersonateUserExtra = map[string][]string{}
			}
			o.AuthInfo.ImpersonateUserExtra[key] = append(o.AuthInfo.ImpersonateUserExtra[key], value)
		}
	}
	return o
}
