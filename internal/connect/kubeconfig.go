package connect

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"subctl/internal/cli"
	"subctl/internal/progress"
	"subctl/internal/proxy"
)

// errNoKubeconfig returns the error that there is no kubeconfig. It names the files of $KUBECONFIG
// if that is set.
func (k *Kubeconfig) errNoKubeconfig() error {
	where := ""
	if files := k.Flags.ToRawKubeConfigLoader().ConfigAccess().GetLoadingPrecedence(); !slices.Equal(files,
		[]string{clientcmd.RecommendedHomeFile}) {
		where = " in " + strings.Join(files, ", ")
	}
	return fmt.Errorf(
		"no kubeconfig found%s: specify one with --kubeconfig FILE or $KUBECONFIG, or create ~/.kube/config", where)
}

// Raw returns the merged kubeconfig files.
func (k *Kubeconfig) Raw() (clientcmdapi.Config, error) {
	loader, err := k.loader()
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

// contextName returns the current context, which --context overrides. It is empty in a pod,
// and with --server and no kubeconfig.
func (k *Kubeconfig) contextName() (string, error) {
	raw, err := k.Raw()
	return cmp.Or(*k.Flags.Context, raw.CurrentContext), err
}

// ClusterName returns the name of the current cluster in the kubeconfig. It is empty in a
// pod, and with --server and no kubeconfig.
func (k *Kubeconfig) ClusterName() (string, error) {
	raw, err := k.checked(*k.Flags.Context)
	if err != nil {
		return "", err
	}
	if *k.Flags.ClusterName != "" {
		return *k.Flags.ClusterName, nil
	}
	if c := raw.Contexts[cmp.Or(*k.Flags.Context, raw.CurrentContext)]; c != nil {
		return c.Cluster, nil
	}
	return "", nil
}

// Namespace returns the namespace of the current context; "default" if it has none.
func (k *Kubeconfig) Namespace() (string, error) {
	if _, err := k.checked(*k.Flags.Context); err != nil {
		return "", err
	}
	loader, err := k.loader()
	if err != nil {
		return "", err
	}
	namespace, _, err := loader.Namespace()
	if err != nil {
		return "", unreadable(err)
	}
	return namespace, nil
}

// RestConfig returns the client configuration of the current context.
func (k *Kubeconfig) RestConfig() (*rest.Config, error) { return k.RestConfigFor(*k.Flags.Context) }

// RestConfigFor returns the client configuration of a context; "" is the current context.
// It must not be called concurrently.
func (k *Kubeconfig) RestConfigFor(context string) (*rest.Config, error) {
	if _, err := k.checked(context); err != nil {
		return nil, err
	}
	old := *k.Flags.Context
	*k.Flags.Context = context
	defer func() { *k.Flags.Context = old }()
	loader, err := k.loader()
	if err != nil {
		return nil, err
	}
	cfg, err := loader.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	cfg.WarningHandler = apiWarnings{progress.New(k.messages)}
	return cfg, nil
}

// BrokerProxy returns how this machine reaches a broker at an address, https://host:port: through
// the proxy of --proxy-url, or else of the kubeconfig if it has a cluster with this address, or
// else of the environment.
func (k *Kubeconfig) BrokerProxy(address string) proxy.Settings {
	if *k.Flags.ProxyURL != "" {
		return proxy.Settings{URL: *k.Flags.ProxyURL, Always: true, Source: "--proxy-url"}
	}
	raw, err := k.Raw()
	if err != nil { // the command has reported it
		return proxy.FromEnvironment()
	}
	for _, name := range slices.Sorted(maps.Keys(raw.Clusters)) {
		c := raw.Clusters[name]
		if c.ProxyURL != "" && strings.TrimRight(c.Server, "/") == strings.TrimRight(address, "/") {
			return proxy.Settings{URL: c.ProxyURL, Always: true, Source: "proxy-url of the kubeconfig"}
		}
	}
	return proxy.FromEnvironment()
}

// checked returns the merged kubeconfig files, if a context of them is usable; "" is the current
// context.
func (k *Kubeconfig) checked(context string) (clientcmdapi.Config, error) {
	raw, err := k.Raw()
	if err != nil {
		return raw, err
	}
	return raw, k.check(raw, cmp.Or(context, raw.CurrentContext))
}

// check returns an error if the kubeconfig has no usable context. Otherwise client-go would
// fall back to localhost:8080.
func (k *Kubeconfig) check(raw clientcmdapi.Config, context string) error {
	known := slices.Sorted(maps.Keys(raw.Contexts))
	switch {
	case context != "" && len(known) == 0 && *k.Flags.APIServer == "":
		return fmt.Errorf("there is no context %q: %w", context, k.errNoKubeconfig())
	case context != "" && raw.Contexts[context] == nil:
		err := fmt.Errorf("there is no context %q in the kubeconfig: it has %s", context, strings.Join(known, ", "))
		return cli.UsageError(err)
	case *k.Flags.APIServer != "" || *k.Flags.ClusterName != "":
		return nil
	case context != "":
		if name := raw.Contexts[context].Cluster; raw.Clusters[name] == nil {
			return fmt.Errorf("the kubeconfig has no cluster %q, which its context %q refers to", name, context)
		}
		return nil
	case len(known) > 0:
		return fmt.Errorf("the kubeconfig has no current context: choose one with --context (%s)",
			strings.Join(known, ", "))
	}
	if _, err := rest.InClusterConfig(); err != nil {
		return k.errNoKubeconfig()
	}
	return nil
}

// loader returns a loader of the kubeconfig: of the files of --kubeconfig, which may be
// several, or else of $KUBECONFIG.
func (k *Kubeconfig) loader() (clientcmd.ClientConfig, error) {
	files := slices.DeleteFunc(filepath.SplitList(*k.Flags.KubeConfig), func(f string) bool { return f == "" })
	if len(files) < 2 {
		return k.Flags.ToRawKubeConfigLoader(), nil
	}
	for _, file := range files { // clientcmd would skip missing files
		if _, err := os.Stat(file); err != nil {
			return nil, unreadable(err)
		}
	}
	rules := &clientcmd.ClientConfigLoadingRules{Precedence: files, DefaultClientConfig: &clientcmd.DefaultClientConfig}
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, k.overrides()), nil
}

// overrides returns kubectl's flags except --kubeconfig. genericclioptions does not export
// them, and supports only one file.
func (k *Kubeconfig) overrides() *clientcmd.ConfigOverrides {
	f := k.Flags
	o := &clientcmd.ConfigOverrides{
		ClusterDefaults: clientcmd.ClusterDefaults,
		CurrentContext:  *f.Context,
		Timeout:         *f.Timeout,
	}
	o.Context.Cluster = *f.ClusterName
	o.Context.AuthInfo = *f.AuthInfoName
	o.ClusterInfo.Server = *f.APIServer
	o.ClusterInfo.TLSServerName = *f.TLSServerName
	o.ClusterInfo.CertificateAuthority = *f.CAFile
	o.ClusterInfo.InsecureSkipTLSVerify = *f.Insecure
	o.ClusterInfo.DisableCompression = *f.DisableCompression
	o.ClusterInfo.ProxyURL = *f.ProxyURL
	o.AuthInfo.ClientCertificate = *f.CertFile
	o.AuthInfo.ClientKey = *f.KeyFile
	o.AuthInfo.Impersonate = *f.Impersonate
	o.AuthInfo.ImpersonateUID = *f.ImpersonateUID
	o.AuthInfo.ImpersonateGroups = *f.ImpersonateGroup
	for _, extra := range *f.ImpersonateUserExtra {
		if key, value, ok := strings.Cut(extra, "="); ok {
			if o.AuthInfo.ImpersonateUserExtra == nil {
				o.AuthInfo.ImpersonateUserExtra = map[string][]string{}
			}
			o.AuthInfo.ImpersonateUserExtra[key] = append(o.AuthInfo.ImpersonateUserExtra[key], value)
		}
	}
	return o
}
